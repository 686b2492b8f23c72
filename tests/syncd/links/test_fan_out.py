"""Effects of one link on the others: entries, members, listings, hints, drafts."""

from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.drafts import Draft, Progress, sign_draft, start_digest
from replica.ids import ConversationId, Digest, EntryId
from replica.link.events import Listed
from replica.link.exchange import Side
from replica.link.link import Link, prepared
from replica.link.messages import (
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    Listing,
    Message,
    Open,
    Opened,
    Ping,
)
from replica.link.steps import finished
from replica.log.body import Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from replica.testing import of
from syncd.hub import Hub
from syncd.links import fan_out
from syncd.links.connected import Connected, LinkId
from syncd.links.fan_out import FanOut, list_more
from syncd.links.hint import Answered, hint_for
from syncd.policy import Policy
from tests.support.call_count import calls
from tests.support.host_scene import RUN, HostScene, read
from tests.support.scene import HUB_KEY
from tests.support.stories import answer
from tests.support.writers import Writer, said

READER = Writer(2)


@pytest.fixture
def scene() -> HostScene:
    return HostScene()


# --- entries --------------------------------------------------------------------


def test_entries_of_one_link_are_offered_to_the_others(scene: HostScene):
    entry = scene.say()
    for peer in (scene.reading, scene.hosting):
        assert entry.id in peer.held(scene.id).log.entries
    assert entry not in [e for m in of(Entries, scene.client.received) for e in m.entries]


def test_entries_received_together_are_sent_together(scene: HostScene):
    line = tuple(scene.chain(5))
    effects, _ = scene.hub.begin_push(scene.writer.public).whole(Entries(scene.id, line), 0.0)
    to_reader = [f.message for link_id, f in effects.send if link_id == scene.reading.link_id]
    assert to_reader == [Entries(scene.id, line)]


def test_everything_sent_on_is_persisted_in_the_same_effects(scene: HostScene):
    (entry,) = scene.chain(1)
    effects = scene.hub.receive(scene.client.link_id, Entries(scene.id, (entry,)), 0.0)
    assert effects.persist == (entry,)
    assert {link_id for link_id, _ in effects.send} == set(scene.hub.links)


def test_a_link_that_has_not_opened_the_conversation_is_sent_nothing(scene: HostScene):
    idle = scene.network.connect(scene.reader.public)
    scene.say()
    assert not of(Entries, idle.received)


# --- members --------------------------------------------------------------------


def test_a_revoked_member_gets_a_close_and_no_more_entries(scene: HostScene):
    scene.client.append(scene.revoke(scene.reader.public))
    entry = scene.say("in private")
    (close,) = of(Close, scene.reading.received)
    assert close.conversation == scene.id
    assert close.fault is not None
    assert close.fault.reason == "CONVERSATION_NOT_FOUND"
    assert entry.id not in scene.reading.held(scene.id).log.entries


def test_a_revoked_member_that_opens_again_is_denied(scene: HostScene):
    scene.client.append(scene.revoke(scene.reader.public))
    scene.reading.open(scene.id)
    assert set(scene.reading.faults) == {"CONVERSATION_NOT_FOUND"}
    # It keeps its copy of the log.
    assert scene.reading.held(scene.id).log.genesis is not None


def test_a_revoked_member_reads_no_drafts(scene: HostScene):
    request = scene.ask()
    scene.client.append(scene.revoke(scene.reader.public))
    scene.stream(*scene.frames(request, [(1, 2)]))
    assert read(scene.client)
    assert not read(scene.reading)


def test_entries_of_a_revoked_member_are_refused(scene: HostScene):
    scene.client.append(scene.revoke(scene.reader.public))
    entry = scene.reader.write(scene.id, said("still here"), parents=[scene.genesis])
    scene.reading.send(Entries(scene.id, (entry,)))
    assert not scene.at_hub(entry)


# --- listings -------------------------------------------------------------------


def test_a_follower_gets_each_conversation_listed_once(scene: HostScene):
    newcomer = Writer(5)
    peer = scene.network.connect(newcomer.public)
    assert not of(Listing, peer.received)
    scene.client.append(scene.grant(newcomer.public))
    (listed,) = of(Listed, peer.events)
    assert [item.conversation for item in listed.items] == [scene.id]
    scene.client.append(scene.grant(Writer(6).public))
    assert len(of(Listing, peer.received)) == 1


def test_a_follower_gets_its_conversations_listed_when_it_connects(scene: HostScene):
    peer = scene.network.connect(scene.reader.public)
    (listing,) = of(Listing, peer.received)
    assert [item.conversation for item in listing.items] == [scene.id]
    assert listing.items[0].creator == scene.held.creator


def test_conversations_are_listed_in_the_order_of_their_ids(scene: HostScene):
    for number in range(20, 30):
        genesis = Writer(number).genesis([Writer(number).public, scene.reader.public])
        message = Entries(genesis.conversation, (genesis,))
        scene.hub.begin_push(Writer(number).public).whole(message, 0.0)
    listed = [
        item.conversation
        for listing in of(Listing, scene.network.connect(scene.reader.public).received)
        for item in listing.items
    ]
    assert len(listed) == 11
    assert listed == sorted(scene.hub.shelf)


def test_a_list_costs_the_same_however_many_requests_wait() -> None:
    """Also a grant, beside members that were listed it before or do not follow."""

    def work(requests: int) -> list[int]:
        scene = HostScene()
        for number in range(8):
            hello = Hello((1,), follow=bool(number % 2))
            scene.network.connect(scene.reader.public, hello=hello)
        for _ in range(requests):
            scene.request()
        grant, held = scene.grant(Writer(9).public), scene.hub.shelf[scene.id]
        assert held.log.digest  # the heads move with the entries since they were last read
        message, link_id = Entries(scene.id, (grant,)), scene.hub.connect(scene.reader.public, 0.0)
        hello = Hello((1,), follow=True)
        return [
            calls(lambda: scene.hub.begin_push(scene.writer.public).whole(message, 0.0)),
            calls(lambda: scene.hub.receive(link_id, hello, 0.0)),
        ]

    for many, few in zip(work(60), work(2), strict=True):
        assert many <= few + 20


def hub_of_ten() -> Hub:
    """Return a hub with ten conversations of READER."""
    hub = Hub(HUB_KEY, Policy())
    for number in range(20, 30):
        genesis = Writer(number).genesis([Writer(number).public, READER.public])
        hub.begin_push(Writer(number).public).whole(Entries(genesis.conversation, (genesis,)), 0.0)
    return hub


def test_a_long_list_is_sent_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "LIST_STEP_ITEMS", 4)
    hub = hub_of_ten()
    link_id = hub.connect(READER.public, 0.0)
    steps = [hub.receive(link_id, Hello((1,), follow=True), 0.0)]
    while hub.connected.is_list_due(link_id):
        steps.append(list_more(hub.connected, hub.shelf, link_id))
    listings = [of(Listing, (frame for _, frame in step.send)) for step in steps]
    assert [len(one.items) for (one,) in listings] == [4, 4, 2]
    listed = [item.conversation for (one,) in listings for item in one.items]
    assert listed == sorted(hub.shelf)
    hub.disconnect(link_id)
    assert not list_more(hub.connected, hub.shelf, link_id).send


def test_a_conversation_of_many_lanes_takes_more_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its digest may have to be computed."""
    monkeypatch.setattr(fan_out, "_ITEM_LANES", 1)
    monkeypatch.setattr(fan_out, "LIST_STEP_ITEMS", 4)
    hub = hub_of_ten()
    link_id = hub.connect(READER.public, 0.0)
    effects = hub.receive(link_id, Hello((1,), follow=True), 0.0)
    (listing,) = of(Listing, (frame for _, frame in effects.send))
    assert len(listing.items) == 2


def test_a_client_that_does_not_follow_gets_no_listing(scene: HostScene):
    peer = scene.network.connect(scene.reader.public, hello=Hello((1,), follow=False))
    scene.client.append(scene.grant(scene.reader.public, Role.WRITER))
    assert not of(Listing, peer.received)


# --- hints ----------------------------------------------------------------------


def watching(scene: HostScene, writer: Writer) -> LinkId:
    link_id = scene.hub.connect(writer.public, 0.0, watches=True)
    scene.hub.receive(link_id, Hello((1,)), 0.0)
    return link_id


def test_an_up_to_date_watcher_gets_a_hint_with_the_answer(scene: HostScene):
    link_id = watching(scene, scene.reader)
    effects = scene.hub.receive(link_id, Open(scene.id, scene.held.log.digest), 0.0)
    assert [type(frame.message) for _, frame in effects.send] == [Opened]
    assert effects.hints == ((link_id, hint_for(scene.held, scene.reader.public)),)


def test_a_watcher_gets_one_hint_per_step(scene: HostScene):
    link_id = watching(scene, scene.reader)
    opened = scene.hub.receive(link_id, Open(scene.id, Digest(bytes(32)), ()), 0.0)
    assert [type(f.message) for to, f in opened.send if to == link_id][-2:] == [Opened, Entries]
    assert len(opened.hints) == 1
    line = tuple(scene.chain(2))
    live, _ = scene.hub.begin_push(scene.writer.public).whole(Entries(scene.id, line), 0.0)
    ((to, hint),) = live.hints
    assert (to, hint.parents) == (link_id, (line[-1].id,))


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_watcher_gets_the_hint_behind_the_entries_that_it_lacks(
    scene: HostScene, monkeypatch: pytest.MonkeyPatch, is_prepared: bool
):
    monkeypatch.setattr(limits, "CREDIT_BYTES", 16_000)
    monkeypatch.setattr("replica.link.channel.ENTRIES_FRAME_BYTES", 500)
    monkeypatch.setattr("replica.link.hub_side.ENTRIES_FRAME_BYTES", 500)
    scene.give(*scene.chain(20))
    link_id = watching(scene, scene.reader)
    link, hints, sent = scene.hub.links[link_id], list[int](), list[Entry]()
    message: Message = Open(scene.id, Digest(bytes(32)), ())
    while len(sent) < len(scene.held.log):
        if is_prepared:
            finished(prepared(link, message))
        effects = scene.hub.receive(link_id, message, 0.0)
        found = [e for _, f in effects.send for e in getattr(f.message, "entries", ())]
        assert found
        sent += found
        hints.append(len(effects.hints))
        message = Credit(limits.CREDIT_BYTES * (1 + len(hints)))
    assert hints == [0] * (len(hints) - 1) + [1]
    assert len(hints) > 3


def test_a_watcher_that_is_sent_nothing_new_gets_no_hint(scene: HostScene):
    link_id = watching(scene, scene.reader)
    scene.hub.receive(link_id, Open(scene.id, scene.held.log.digest), 0.0)
    assert scene.hub.receive(link_id, Ping(1), 0.0).hints == ()


def test_a_non_member_gets_no_hint(scene: HostScene):
    for key, hints in ((scene.reader.public, 1), (Writer(66).public, 0)):
        link = Link(Side.HUB, key=HUB_KEY, peer=key, shelf=scene.hub.shelf, now=0.0)
        connected = Connected()
        connected.add(LinkId(1), link, watches=True)
        out = FanOut(connected, scene.hub.shelf, 0.0)
        out.send(LinkId(1), Opened(scene.id, scene.held.log.digest, True))
        assert len(out.build().hints) == hints


def test_a_watcher_gets_the_answer_named_with_the_hint_that_covers_it(scene: HostScene):
    link_id = watching(scene, scene.reader)
    scene.hub.receive(link_id, Open(scene.id, scene.held.log.digest, ()), 0.0)
    request = scene.ask()
    told = scene.host.write(scene.id, answer(), parents=[scene.sealed], basis=scene.sealed)
    effects, _ = scene.hub.begin_push(scene.host.public).whole(Entries(scene.id, (told,)), 0.0)
    ((to, news),) = effects.answered
    assert (to, news) == (link_id, Answered(scene.id, request, scene.sealed.id, told.id))
    ((_, hint),) = effects.hints
    assert (hint.parents, hint.open_request) == ((told.id,), None)


# --- drafts ---------------------------------------------------------------------


def test_drafts_reach_every_reader_in_order(scene: HostScene):
    request = scene.ask()
    sent = scene.frames(request, [(1, 2), (3,), (4, 5)])
    scene.stream(*sent)
    assert read(scene.reading) == read(scene.client) == sent


def test_a_draft_is_not_sent_back_to_its_host(scene: HostScene):
    request = scene.ask()
    scene.stream(*scene.frames(request, [(1,)]))
    assert not of(Draft, scene.hosting.received)
    other = scene.network.connect(scene.host.public)  # another link of the same key is a reader
    other.open(scene.id)
    assert len(read(other)) == 1


def test_drafts_wait_for_the_seal(scene: HostScene):
    request = scene.request()
    scene.stream(*scene.frames(request.id, [(1,)]))
    assert not read(scene.reading)


def test_a_late_reader_gets_the_draft_from_its_start(scene: HostScene):
    request = scene.ask()
    sent = scene.frames(request, [(1, 2), (3,)])
    scene.stream(*sent)
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(late) == sent


def test_each_watch_gets_the_draft_from_offset_0_whatever_the_frames_hold(scene: HostScene):
    request = scene.ask()
    for pieces in ([(1, 2, 3)], [(4,), (5, 6, 7, 8)]):
        sent = scene.frames(request, pieces, run=pieces[0][0])
        scene.stream(*sent)
        for _ in range(2):
            link_id = watching(scene, scene.reader)
            effects = scene.hub.receive(link_id, Open(scene.id, Digest(bytes(32)), (), True), 0.0)
            drafts = [f.message for to, f in effects.send if to == link_id]
            assert [m for m in drafts if isinstance(m, Draft)] == sent


def test_a_draft_is_dropped_once_its_generation_is_admitted(scene: HostScene):
    request = scene.ask()
    first, second = scene.frames(request, [(1,), (2,)])
    scene.stream(first)
    assert scene.held.drafts
    scene.answer()
    assert not scene.held.drafts
    scene.stream(second)
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(scene.reading) == [first]
    assert not read(late)


def test_only_the_requests_host_may_stream(scene: HostScene):
    request = scene.ask()
    scene.client.send(*scene.frames(request, [(1,)]))
    assert of(Fault, scene.client.received)[-1].reason == "ROLE_FORBIDS"
    assert not read(scene.reading)


def test_a_draft_with_a_wrong_signature_is_not_passed_on(scene: HostScene):
    request = scene.ask()
    (draft,) = scene.frames(request, [(1,)])
    scene.stream(replace(draft, data=b"y"))
    assert of(Fault, scene.hosting.received)[-1].reason == "SIGNATURE_INVALID"
    assert not read(scene.reading)


def test_a_stranger_learns_nothing_by_streaming(scene: HostScene):
    request = scene.ask()
    stranger = scene.network.connect(Writer(66).public)
    (draft,) = scene.frames(request, [(1,)])
    before = len(stranger.received)
    stranger.send(draft)
    stranger.send(replace(draft, conversation=ConversationId(b"?" * 32)))
    assert len(stranger.received) == before


def test_a_new_run_replaces_the_one_before(scene: HostScene):
    request = scene.ask()
    scene.stream(*scene.frames(request, [(1, 2), (3,)]))
    again = scene.frames(request, [(8,), (9,)], run=8)
    scene.stream(*again)
    assert read(scene.reading)[-2:] == again
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(late) == again


def test_a_late_frame_of_an_old_run_changes_nothing(scene: HostScene):
    request = scene.ask()
    old = scene.frames(request, [(1,), (2,)])
    new = scene.frames(request, [(8,), (9,)], run=8)
    scene.stream(old[0], new[0], old[1], new[1])
    assert read(scene.reading) == [old[0], *new]


def test_progress_before_the_first_token_is_kept_only_while_it_is_the_newest(scene: HostScene):
    request = scene.ask()
    start = start_digest(request, RUN)
    reports = [
        sign_draft(
            Draft(scene.id, request, RUN, 0, (), 0, b"", start, progress=Progress(9, 0, 0, done)),
            scene.host.key,
        )
        for done in (3, 6)
    ]
    scene.stream(*reports, *scene.frames(request, [(1,)]))
    assert len(read(scene.reading)) == 3
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert [d.token_ids for d in read(late)] == [(1,)]


def test_one_that_waits_is_listed_once() -> None:
    """It is in the list twice: first among those that wait, and among all."""
    hub = hub_of_ten()
    owner = Writer(20)
    (waits,) = (c for c, held in hub.shelf.items() if held.creator == owner.public)
    genesis = hub.shelf[waits].log.entries[EntryId(waits)]
    grant = owner.write(waits, Member(Grant(READER.public, Role.HOST)), parents=[genesis])
    request = Request(READER.public, Sampling())
    asked = owner.write(waits, request, parents=[genesis])
    hub.begin_push(owner.public).whole(Entries(waits, (grant, asked)), 0.0)
    link_id = hub.connect(READER.public, 0.0)
    sent = hub.receive(link_id, Hello((1,), follow=True), 0.0).send
    listed = [item for one in of(Listing, (frame for _, frame in sent)) for item in one.items]
    assert listed[0].conversation == waits
    assert len(listed) == len({item.conversation for item in listed}) == 10
