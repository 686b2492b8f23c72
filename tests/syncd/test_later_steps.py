"""What many links are to be sent is sent in several steps (spec/04-link §7, LINK-92)."""

import pytest

from replica import limits
from replica.ids import Digest
from replica.link import hub_side
from replica.link.messages import Close, Credit, Draft, Entries, Hello, Listing, Open
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry, verify_signature
from syncd.later_steps import next_link, resume
from syncd.links import fan_out
from syncd.links.connected import LinkId
from syncd.links.fan_out import HubEffects
from tests.support.call_count import calls
from tests.support.host_scene import HostScene
from tests.support.scene import Scene
from tests.support.writers import Writer, said

EARLIER = Digest(bytes(32))


@pytest.fixture(autouse=True)
def _two_links_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SEND_COST_MAX", fan_out.LINK_COST + 2)


def begun(scene: Scene | None = None) -> Scene:
    """Begin on a hub that takes later steps, and disconnect whoever began."""
    scene = scene or Scene().begin()
    scene.hub.connected.postponed.drive()
    for link_id in tuple(scene.hub.links):
        scene.hub.disconnect(link_id)
    return scene


def reading(scene: Scene, writer: Writer, *, watches: bool = False, drafts: bool = False) -> LinkId:
    """Open the conversation on another link; the peer holds all that is there."""
    link_id = scene.hub.connect(writer.public, 0.0, watches=watches)
    scene.hub.receive(link_id, Hello((1,)), 0.0)
    scene.hub.receive(link_id, Open(scene.id, scene.held.log.digest, drafts=drafts), 0.0)
    return link_id


def push(scene: Scene, *entries: Entry) -> HubEffects:
    effects, outcomes = scene.hub.begin_push(scene.writer.public).whole(
        Entries(scene.id, entries), 0.0
    )
    assert not any(outcomes.values())
    return effects


def entries_of(effects: HubEffects) -> dict[LinkId, list[Entry]]:
    found: dict[LinkId, list[Entry]] = {}
    for link_id, frame in effects.send:
        if isinstance(frame.message, Entries):
            found.setdefault(link_id, []).extend(frame.message.entries)
    return found


def resumed(scene: Scene) -> list[HubEffects]:
    """Let all that wait have their steps."""
    steps = []
    for key in scene.hub.connected.postponed.take_new():
        while next_link(scene.hub, key) is not None:
            steps.append(resume(scene.hub, key))
    return steps


def test_the_links_beyond_some_get_an_entry_in_steps_of_their_own() -> None:
    scene = begun()
    links = [reading(scene, scene.writer) for _ in range(5)]
    (entry,) = scene.chain(1)
    at_once = entries_of(push(scene, entry))
    assert at_once == {link_id: [entry] for link_id in links[:2]}
    later = [entries_of(step) for step in resumed(scene)]
    assert later == [{links[2]: [entry], links[3]: [entry]}, {links[4]: [entry]}]
    assert not resumed(scene)


def test_entries_that_come_meanwhile_follow_in_the_same_step_and_order() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer) for _ in range(3))
    line = scene.chain(3)
    for entry in line:
        assert last not in entries_of(push(scene, entry))
    (step,) = resumed(scene)
    assert entries_of(step) == {last: line}


def test_what_a_link_sends_brings_it_what_waits_for_it() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer) for _ in range(3))
    (entry,) = scene.chain(1)
    push(scene, entry)
    assert entries_of(scene.hub.receive(last, Credit(1 << 30), 0.0)) == {last: [entry]}
    assert [entries_of(step) for step in resumed(scene)] == [{}]


def test_what_a_link_closes_or_opens_comes_behind_what_waits_for_it() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer) for _ in range(3))
    line = scene.chain(2)
    push(scene, line[0])
    opened = scene.hub.receive(last, Open(scene.id, scene.held.log.digest), 0.0)
    assert entries_of(opened) == {last: line[:1]}
    push(scene, line[1])
    scene.hub.receive(last, Close(scene.id), 0.0)
    assert [entries_of(step) for step in resumed(scene)] == [{}]


def test_a_link_that_closed_what_waits_for_it_waits_no_longer() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer) for _ in range(3))
    push(scene, *scene.chain(1))
    scene.hub.receive(last, Close(scene.id), 0.0)
    assert last not in [link_id for link_id, _ in scene.hub.connected.readers(scene.id)]
    scene.hub.disconnect(last)
    assert not resumed(scene)


def test_a_list_comes_with_what_waits_for_its_link() -> None:
    scene = begun()
    for _ in range(2):
        reading(scene, scene.writer)
    last = scene.hub.connect(scene.writer.public, 0.0)
    scene.hub.receive(last, Hello((1,), follow=True), 0.0)
    scene.hub.receive(last, Open(scene.id, scene.held.log.digest), 0.0)
    (entry,) = scene.chain(1)
    assert last not in entries_of(push(scene, entry))
    other = Writer(9).genesis((Writer(9).public, scene.writer.public))
    effects, _ = scene.hub.begin_push(scene.writer.public).whole(
        Entries(other.conversation, (other,)), 0.0
    )
    assert entries_of(effects) == {last: [entry]}
    assert [type(f.message) for i, f in effects.send if i == last] == [Listing, Entries]


def test_a_link_that_waits_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun()
    links = [reading(scene, scene.writer) for _ in range(4)]
    touched = []
    for link_id in links[2:]:
        monkeypatch.setattr(scene.hub.links[link_id], "offer", touched.append)
    push(scene, *scene.chain(1))
    assert not touched


def test_a_link_that_is_gone_waits_for_nothing() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer) for _ in range(3))
    push(scene, *scene.chain(1))
    scene.hub.disconnect(last)
    assert not resumed(scene)


def test_a_hub_that_takes_no_later_steps_sends_all_at_once() -> None:
    scene = Scene().begin()
    scene.hub.disconnect(scene.client.link_id)
    links = [reading(scene, scene.writer) for _ in range(5)]
    (entry,) = scene.chain(1)
    assert entries_of(push(scene, entry)) == {link_id: [entry] for link_id in links}


def test_the_keys_of_those_that_wait_have_steps_of_their_own() -> None:
    scene = begun(HostScene())
    both = scene.writer, scene.reader  # type: ignore[attr-defined]
    links = [reading(scene, both[number > 2]) for number in range(5)]
    (entry,) = scene.chain(1)
    push(scene, entry)
    later = [entries_of(step) for step in resumed(scene)]
    assert later == [{links[2]: [entry]}, {links[3]: [entry], links[4]: [entry]}]


def test_a_link_behind_a_backlog_waits_for_its_credit_alone() -> None:
    scene = begun()
    push(scene, *scene.chain(30))
    links = [reading(scene, scene.writer) for _ in range(2)]
    behind = scene.hub.connect(scene.writer.public, 0.0)
    scene.hub.receive(behind, Hello((1,)), 0.0)
    scene.hub.links[behind].flow.sent_limit = 0
    scene.hub.receive(behind, Open(scene.id, EARLIER, ()), 0.0)
    line = scene.chain(1)
    assert entries_of(push(scene, *line)) == dict.fromkeys(links, line)
    assert [entries_of(step) for step in resumed(scene)] == [{}]
    got = entries_of(scene.hub.receive(behind, Credit(1 << 30), 0.0))[behind]
    assert (len(got), got[-1:]) == (len(scene.held.log), line)


def test_a_link_that_gets_no_drafts_does_not_wait_for_any() -> None:
    scene = HostScene()
    request = scene.ask()
    scene.hub.connected.postponed.drive()
    for _ in range(4):
        reading(scene, scene.writer)
    (draft,) = scene.frames(request, [(1,)])
    scene.hub.receive(scene.hosting.link_id, draft, 0.0)
    assert not resumed(scene)


def test_watches_of_a_key_share_the_hint_of_a_step() -> None:
    scene = begun()
    links = [reading(scene, scene.writer, watches=True) for _ in range(4)]
    push(scene, *scene.chain(1))
    (step,) = resumed(scene)
    assert [link_id for link_id, _ in step.hints] == links[2:]
    assert len({id(hint) for _, hint in step.hints}) == 1


def test_a_watcher_gets_its_hint_in_its_step() -> None:
    scene = begun()
    _, _, last = (reading(scene, scene.writer, watches=True) for _ in range(3))
    (entry,) = scene.chain(1)
    assert last not in dict(push(scene, entry).hints)
    (step,) = resumed(scene)
    ((link_id, hint),) = step.hints
    assert (link_id, hint.parents) == (last, (entry.id,))


def test_a_reader_that_is_removed_meanwhile_gets_a_close_alone() -> None:
    scene = HostScene()
    begun(scene)
    links = [reading(scene, writer) for writer in (scene.writer, scene.writer, scene.reader)]
    push(scene, *scene.chain(1))
    push(scene, scene.revoke(scene.reader.public))
    sent = [frame.message for step in resumed(scene) for to, frame in step.send if to == links[2]]
    assert [type(message) for message in sent] == [Close]


def test_drafts_are_sent_in_steps_too() -> None:
    scene = HostScene()
    request = scene.ask()
    scene.hub.connected.postponed.drive()
    for peer in (scene.client, scene.reading):
        scene.hub.disconnect(peer.link_id)
    links = [reading(scene, scene.writer, drafts=True) for _ in range(4)]
    first, second = scene.frames(request, [(1,), (2,)])
    sent = [
        [to for to, frame in effects.send if isinstance(frame.message, Draft)]
        for draft in (first, second)
        for effects in [scene.hub.receive(scene.hosting.link_id, draft, 0.0)]
    ]
    assert sent == [links[:2], links[:2]]
    got = [(to, frame.message) for step in resumed(scene) for to, frame in step.send]
    assert got == [(link_id, draft) for link_id in links[2:] for draft in (first, second)]


# --- many entries ------------------------------------------------------------------------


def regained(count: int) -> tuple[Scene, Entry, list[Entry]]:
    """Return entries of Bob, whom Carol revoked, with the owner's grant that covers them again."""
    scene = begun()
    bob, carol = Writer(2), Writer(3)
    last = scene.grant(carol.public, Role.OWNER)
    push(scene, last)
    granted = carol.write(scene.id, Member(Grant(bob.public, Role.WRITER)), parents=[last])
    line = [bob.write(scene.id, said("x"), parents=[scene.genesis]) for _ in range(count)]
    push(scene, granted, *line)
    push(scene, carol.write(scene.id, Member(Revocation(bob.public)), parents=[granted]))
    assert line[-1].id not in scene.held.log.covered()
    change = scene.grant(bob.public)
    verify_signature(change)  # kept, so that it is in no count of calls
    return scene, change, line


def test_many_entries_that_are_covered_again_are_sent_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_side, "SHARED_IDS", 4)
    monkeypatch.setattr("replica.link.channel.ENTRIES_FRAME_BYTES", 500)
    monkeypatch.setattr(limits, "CREDIT_BYTES", 16_000)  # of which a step sends a sixteenth
    scene, change, line = regained(20)
    links = [reading(scene, scene.writer) for _ in range(3)]
    got = entries_of(push(scene, change))
    assert list(got) == links[:1]
    (more,) = scene.chain(1)
    push(scene, more)
    for step in resumed(scene):
        for link_id, entries in entries_of(step).items():
            got[link_id] = got.get(link_id, []) + entries
    for link_id in links:
        assert len(got[link_id]) < len(line), "the rest waits for credit"
        for number in range(2, 20):
            effects = scene.hub.receive(link_id, Credit(16_000 * number), 0.0)
            got[link_id] += entries_of(effects).get(link_id, [])
        assert got[link_id] == [change, *line, more]


def test_a_reader_costs_the_same_however_many_entries_come_at_once() -> None:
    def work(count: int) -> int:
        scene, change, _ = regained(count)
        links = [reading(scene, scene.writer) for _ in range(40)]
        alone = calls(lambda: push(scene, change))
        (waiting,) = scene.hub.connected.postponed._of.values()
        assert len(waiting) == len(links) - 1
        return alone - calls_of_one_reader(count)

    def calls_of_one_reader(count: int) -> int:
        scene, change, _ = regained(count)
        reading(scene, scene.writer)
        return calls(lambda: push(scene, change))

    assert work(400) <= 1.1 * work(100)


def test_an_append_costs_little_for_each_link_that_waits() -> None:
    def work(count: int) -> int:
        scene = begun()
        for _ in range(count):
            reading(scene, scene.writer)
        (entry,) = scene.chain(1)
        return calls(lambda: push(scene, entry))

    assert (work(300) - work(100)) / 200 < 40
