"""The hub's side of one link: opens, acks, and refusals of strangers."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import Draft, DraftStream, extend_digest
from replica.ids import ConversationId, Digest, EntryId, Position
from replica.link.codec import encode_frame
from replica.link.messages import (
    Ack,
    Close,
    Credit,
    EncodedHeads,
    Entries,
    Fault,
    Ids,
    Message,
    Open,
    Opened,
)
from replica.link.steps import JUDGED_ENTRIES, STEP_HEADS, finished
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.log.log import Log
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged, QuotaExceeded
from tests.support.hub_scene import Scene
from tests.support.writers import Writer, said

OTHER = Digest(b"?" * 32)
NOWHERE = ConversationId(b"n" * 32)
EVE = Writer(9).public


class CountedLooks:
    """Counts the entries of a log that are looked at to see whether they are covered."""

    def __init__(self, log: Log) -> None:
        self.count, self._covered = 0, log.covered()
        log.covered = lambda: self  # type: ignore[assignment,method-assign,return-value]

    def __contains__(self, entry_id: EntryId) -> bool:
        self.count += 1
        return entry_id in self._covered


class Heads(tuple[Position, ...]):
    """Heads that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[Position]:
        self.reads += 1
        return super().__iter__()


def many_heads(scene: Scene) -> Heads:
    """Return as many as are compared in several steps; the last one diverges."""
    known = scene.line[2].position
    other = known._replace(id=EntryId(bytes(32)))
    return Heads([known] * (2 * STEP_HEADS) + [other])


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_stranger_cannot_detect_conversations(scene: Scene) -> None:
    (mine,) = scene.receive(Open(scene.id, OTHER), EVE)
    (none,) = scene.receive(Open(NOWHERE, OTHER), EVE)
    assert isinstance(mine, Fault)
    assert isinstance(none, Fault)
    assert mine.reason == ConversationUnknown.reason
    assert replace(mine, conversation=None) == replace(none, conversation=None)
    assert not scene.side.channels


def test_equal_digests_need_no_heads(scene: Scene) -> None:
    digest = scene.held.log.digest
    assert scene.receive(Open(scene.id, digest)) == [Opened(scene.id, digest, True)]
    assert scene.side.channels[scene.id].is_open


def test_another_digest_is_answered_with_heads(scene: Scene) -> None:
    log = scene.held.log
    assert scene.receive(Open(scene.id, OTHER)) == [
        Opened(scene.id, log.digest, False, log.heads())
    ]
    assert not scene.side.channels[scene.id].is_open


def test_in_a_live_exchange_a_digest_is_answered_by_a_digest(scene: Scene) -> None:
    scene.receive(Open(scene.id, scene.held.log.digest))
    assert scene.receive(Open(scene.id, OTHER)) == [Opened(scene.id, scene.held.log.digest, False)]


def test_heads_are_answered_with_the_missing_entries(scene: Scene) -> None:
    scene.receive(Open(scene.id, OTHER, (scene.genesis.position, scene.line[1].position)))
    assert scene.pumped() == [Entries(scene.id, tuple(scene.line[2:]))]


def test_where_lanes_diverge_one_is_named_and_all_ids_are_sent(scene: Scene) -> None:
    twin = Writer(1)
    twin.genesis()
    other = twin.write(scene.id, said("another epoch"), parents=[scene.genesis])
    answer = scene.receive(Open(scene.id, OTHER, (scene.genesis.position, other.position)))
    faults = [m for m in answer if isinstance(m, Fault)]
    assert [(f.reason, f.entry) for f in faults] == [(LanesDiverged.reason, other.id)]
    assert scene.pumped() == [Ids(scene.id, tuple(e.id for e in scene.line))]


def test_missing_bodies_are_asked_for(scene: Scene) -> None:
    bare = replace(scene.line[1], body=None)
    scene.shelf.add(Conversation.restore(scene.id, [scene.genesis, bare, *scene.line[2:]]))
    answer = scene.receive(Open(scene.id, OTHER))
    (fault,) = (m for m in answer if isinstance(m, Fault))
    assert (fault.reason, fault.missing) == (EntriesMissing.reason, (bare.id,))


def test_an_ack_names_the_last_of_each_lane(scene: Scene) -> None:
    answer = scene.receive(Entries(scene.id, tuple(scene.line)))
    assert answer == [Ack(scene.id, tuple(sorted([scene.genesis.id, scene.line[-1].id])))]


def test_a_message_is_judged_once_all_of_its_parts_are_admitted(scene: Scene) -> None:
    """An entry was refused although the rest of the message covers it (ORD-16)."""
    owner, bob = Writer(1, epoch=3), Writer(9)
    last = scene.genesis
    for change in (Grant(EVE, Role.WRITER), Revocation(EVE)):
        last = owner.write(scene.id, Member(change), parents=[last])
        scene.receive(Entries(scene.id, (last,)))
    cut_off = [
        bob.write(scene.id, said("x"), parents=[scene.genesis]) for _ in range(2 * JUDGED_ENTRIES)
    ]
    reply = scene.ada.write(scene.id, said("y"), parents=[scene.line[-1], cut_off[0]])
    assert scene.receive(Entries(scene.id, tuple(cut_off), more=True)) == []
    assert scene.receive(Entries(scene.id, (reply,), more=True)) == [Ack(scene.id, (reply.id,))]
    answers = scene.receive(Entries(scene.id, (), more=True))
    assert len(answers) == JUDGED_ENTRIES
    answers += scene.receive(Entries(scene.id, ()))
    assert [m for m in answers if isinstance(m, Ack)] == [Ack(scene.id, (cut_off[0].id,))]
    refused = [m.entry for m in answers if isinstance(m, Fault)]
    assert refused == [entry.id for entry in cut_off[1:]]


def test_what_waits_for_the_rest_of_a_message_is_judged_by_its_own_log_alone(scene: Scene) -> None:
    """The rest of a message may never come, as where its conversation is deleted."""
    grant = Writer(1, epoch=3).write(
        scene.id, Member(Grant(EVE, Role.READER)), parents=[scene.genesis]
    )
    scene.receive(Entries(scene.id, (grant,)))
    word = Writer(9).write(scene.id, said("x"), parents=[scene.genesis])
    begun = Entries(scene.id, (word,), more=True)
    assert scene.receive(begun) == []
    bob = Writer(2)
    other = bob.genesis()
    answer = scene.receive(Entries(other.conversation, (other,)), bob.public)
    assert answer == [Ack(other.conversation, (other.id,))]
    scene.receive(begun)
    scene.shelf.add(Conversation.restore(scene.id, [*scene.line, grant]))  # the disk refused it
    assert scene.receive(Entries(scene.id, ())) == []


def test_a_known_entry_is_acked_and_not_persisted_again(scene: Scene) -> None:
    new = scene.ada.write(scene.id, said("new"), parents=scene.line[-1:])
    assert scene.receive(Entries(scene.id, (scene.line[-1], new))) == [Ack(scene.id, (new.id,))]
    assert scene.out.persist == [new]


def test_conversations_on_one_link_are_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 0)
    (fault,) = scene.receive(Open(scene.id, OTHER))
    assert isinstance(fault, Fault)
    assert fault.reason == QuotaExceeded.reason


def test_an_open_conversation_is_opened_again_whatever_the_bound(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 1)
    digest = scene.held.log.digest
    for _ in range(2):
        assert scene.receive(Open(scene.id, digest)) == [Opened(scene.id, digest, True)]


def test_membership_is_checked_at_every_delivery(scene: Scene) -> None:
    scene.receive(Open(scene.id, OTHER, ()))
    (close,) = scene.pumped(EVE)
    assert isinstance(close, Close)
    assert close.fault is not None
    assert close.fault.reason == ConversationUnknown.reason
    assert not scene.side.channels
    assert scene.pumped() == []


def test_a_refusal_by_the_client_is_only_reported(scene: Scene) -> None:
    scene.receive(Open(scene.id, scene.held.log.digest))
    fault = Fault.of(ConversationUnknown(), scene.id)
    assert scene.receive(fault) == []
    assert scene.side.channels[scene.id].is_open
    assert [getattr(event, "fault", None) for event in scene.out.deliver] == [fault]


def test_a_reader_that_opens_again_with_heads_gets_the_drafts_from_their_start(
    scene: Scene,
) -> None:
    request = scene.line[-1].id
    stream = scene.held.drafts[request] = DraftStream(scene.id, request, 1)
    draft = Draft(scene.id, request, 1, 0, (7,), 0, b"a", extend_digest(stream.digest, (7,)))
    assert stream.receive(draft)
    digest, heads = scene.held.log.digest, tuple(scene.held.log.heads())
    for again, expected in ((heads, [draft]), (None, []), (heads, [draft])):
        scene.receive(Open(scene.id, digest, again, drafts=True))
        assert scene.pumped() == expected


def test_heads_that_were_compared_in_steps_are_not_compared_again(scene: Scene) -> None:
    plain = scene.receive(Open(scene.id, OTHER, many_heads(scene)))
    heads = many_heads(scene)
    asked = Open(scene.id, OTHER, heads)
    assert len(list(scene.side.prepare(asked, scene.ada.public))) == 2
    assert heads.reads == 1
    assert scene.receive(asked) == plain
    assert heads.reads == 1
    assert scene.receive(asked) == plain  # nothing of it is kept
    assert heads.reads == 2


def test_heads_are_compared_with_the_log_that_is_here_when_the_open_is_answered(
    scene: Scene,
) -> None:
    asked = Open(scene.id, OTHER, many_heads(scene))
    finished(scene.side.prepare(asked, scene.ada.public))
    scene.shelf.remove(scene.id)
    scene.shelf.add(Conversation.restore(scene.id, scene.line[:1]))
    assert LanesDiverged.reason not in [getattr(m, "reason", "") for m in scene.receive(asked)]


def test_nothing_is_compared_for_a_stranger_or_where_the_logs_are_equal(scene: Scene) -> None:
    heads = many_heads(scene)
    equal = Open(scene.id, scene.held.log.digest, heads)
    for asked, peer in (
        (Open(scene.id, OTHER, heads), EVE),
        (Open(NOWHERE, OTHER, heads), scene.ada.public),
        (equal, scene.ada.public),
    ):
        finished(scene.side.prepare(asked, peer))
    assert heads.reads == 0


@pytest.fixture(scope="module")
def lanes() -> list[Entry]:
    """Return a log of one lane more than one step encodes, the genesis first."""
    genesis = Writer(1).genesis()
    epochs = range(2, STEP_HEADS + 2)
    writers = (Writer(1, epoch=epoch) for epoch in epochs)
    return [
        genesis,
        *(one.write(genesis.conversation, said("x"), parents=[genesis]) for one in writers),
    ]


def of_lanes(scene: Scene, lanes: list[Entry]) -> Scene:
    scene.shelf.remove(scene.id)
    scene.held = Conversation.restore(lanes[0].conversation, lanes)
    scene.shelf.add(scene.held)
    return scene


@pytest.mark.parametrize("with_heads", [False, True])
def test_many_heads_of_an_answer_are_encoded_in_steps(
    scene: Scene, lanes: list[Entry], with_heads: bool
) -> None:
    log = of_lanes(scene, lanes).held.log
    asked = Open(scene.id, OTHER, lanes_of(lanes[1:]) if with_heads else None)
    steps = len(list(scene.side.prepare(asked, scene.ada.public)))
    assert steps == 2 + (2 if with_heads else 0)
    (opened,) = scene.receive(asked)
    assert isinstance(opened, Opened)
    assert isinstance(opened.heads, EncodedHeads)
    plain = Opened(scene.id, log.digest, False, log.heads())
    assert opened == plain
    assert encode_frame(opened, "to_client") == encode_frame(plain, "to_client")
    assert scene.pumped() == ([Entries(scene.id, (lanes[0],))] if with_heads else [])
    (again,) = scene.receive(Open(scene.id, OTHER))
    assert isinstance(again, Opened)
    assert not isinstance(again.heads, EncodedHeads)  # nothing of it is kept


def test_heads_that_moved_since_they_were_encoded_are_sent_as_they_are(
    scene: Scene, lanes: list[Entry]
) -> None:
    held = of_lanes(scene, lanes).held
    asked = Open(scene.id, OTHER)
    finished(scene.side.prepare(asked, scene.ada.public))
    held.log.admit(Writer(1, epoch=1_000).write(scene.id, said("new"), parents=lanes[:1]))
    (opened,) = scene.receive(asked)
    assert opened == Opened(scene.id, held.log.digest, False, held.log.heads())


def test_nothing_is_encoded_where_no_heads_are_sent(scene: Scene, lanes: list[Entry]) -> None:
    log = of_lanes(scene, lanes).held.log
    scene.receive(Open(scene.id, log.digest))  # open from now on
    for asked in (Open(scene.id, log.digest), Open(scene.id, OTHER)):
        assert not list(scene.side.prepare(asked, scene.ada.public))


def lanes_of(entries: list[Entry]) -> tuple[Position, ...]:
    return tuple(entry.position for entry in entries)


@pytest.fixture(scope="module")
def long() -> list[Entry]:
    """Return a log of more entries than one step looks at, the genesis first."""
    writer = Writer(1)
    entries = [writer.genesis()]
    for _ in range(STEP_HEADS):
        entries.append(writer.write(entries[0].conversation, said("x"), parents=entries[-1:]))
    return entries


@pytest.mark.parametrize("is_answer", [False, True])
def test_what_is_not_among_the_ids_of_a_peer_is_looked_for_in_steps(
    scene: Scene, long: list[Entry], is_answer: bool
) -> None:
    log = of_lanes(scene, long).held.log
    ids = tuple(entry.id for entry in long)
    answers: list[list[Message]] = []
    for is_prepared in (False, True):
        scene.receive(Open(scene.id, OTHER, ()))
        scene.pumped()
        first = Ids(scene.id, ids[1:9], True, is_answer)
        last = Ids(scene.id, ids[9:-1], False, is_answer)
        assert not list(scene.side.prepare(first, scene.ada.public))
        scene.receive(first)
        if is_prepared:
            assert len(list(scene.side.prepare(last, scene.ada.public))) == 1
        looks = CountedLooks(log)
        scene.receive(last)
        answers.append(scene.pumped())
        listed = sum(len(message.ids) for message in answers[-1] if isinstance(message, Ids))
        assert (looks.count - listed < 10) == is_prepared
        assert answers[-1][-1] == Entries(scene.id, (long[0], long[-1]))
    assert answers[0] == answers[1]


def test_a_look_ahead_finds_what_is_sent_next_and_no_more(
    scene: Scene, long: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CREDIT_BYTES", 16)
    monkeypatch.setattr("replica.link.hub_side.ENTRIES_FRAME_BYTES", 200)
    log = of_lanes(scene, long).held.log
    scene.receive(Open(scene.id, OTHER, ()))
    looks = CountedLooks(log)
    assert scene.side.is_walking
    assert not list(scene.side.prepare(Credit(1), scene.ada.public, may_send=False))
    assert looks.count == 0
    assert not list(scene.side.prepare(Ids(scene.id, ()), scene.ada.public))
    assert 0 < looks.count < 10
    scene.receive(Ids(scene.id, (), answer=True))
    looks.count = 0
    assert not list(scene.side.prepare(Credit(1), scene.ada.public))
    assert looks.count == 0  # what was found is kept


def test_entries_that_the_peer_holds_are_passed_in_steps_before_a_credit(
    scene: Scene, long: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CREDIT_BYTES", 16)
    monkeypatch.setattr("replica.link.channel.ENTRIES_FRAME_BYTES", 1)
    monkeypatch.setattr("replica.link.hub_side.ENTRIES_FRAME_BYTES", 0)
    log = of_lanes(scene, long).held.log
    scene.receive(Open(scene.id, OTHER, ()))
    scene.receive(Ids(scene.id, tuple(entry.id for entry in long[1:-1]), answer=True))
    scene.pumped(limit=0)
    (sent,) = scene.pumped(limit=1)
    assert sent == Entries(scene.id, (long[0],))
    assert len(list(scene.side.prepare(Credit(1), scene.ada.public))) == 1
    looks = CountedLooks(log)
    (sent,) = scene.pumped(limit=1)
    assert (sent, looks.count < 10) == (Entries(scene.id, (long[-1],)), True)


def test_what_was_found_and_is_covered_no_more_is_not_sent(scene: Scene) -> None:
    bob = Writer(2)
    grant = scene.ada.write(
        scene.id, Member(Grant(bob.public, Role.WRITER)), parents=[scene.genesis]
    )
    by_bob = bob.write(scene.id, said("x"), parents=[scene.genesis])
    for entry in (grant, by_bob):
        scene.held.admit(entry)
    scene.receive(Open(scene.id, OTHER, ()))
    assert not list(scene.side.prepare(Credit(1), scene.ada.public))
    removal = scene.ada.write(scene.id, Member(Revocation(bob.public)), parents=[grant])
    scene.held.admit(removal)
    (sent,) = scene.pumped()
    assert isinstance(sent, Entries)
    assert {e.id for e in sent.entries} == {grant.id, *(e.id for e in scene.line)}


def test_what_is_admitted_after_the_look_at_a_peers_ids_is_sent_once(
    scene: Scene, long: list[Entry]
) -> None:
    held = of_lanes(scene, long).held
    scene.receive(Open(scene.id, OTHER, ()))
    last = Ids(scene.id, tuple(entry.id for entry in long), answer=True)
    steps = scene.side.prepare(last, scene.ada.public)
    next(steps)
    new = [
        Writer(1, epoch=epoch).write(scene.id, said("new"), parents=long[-1:]) for epoch in (7, 8)
    ]
    held.admit(new[0])
    finished(steps)
    held.admit(new[1])
    scene.receive(last)
    assert scene.pumped() == [Entries(scene.id, tuple(new))]


def test_the_ids_of_a_peer_count_as_memory_until_all_is_sent(
    scene: Scene, long: list[Entry]
) -> None:
    of_lanes(scene, long)
    scene.receive(Open(scene.id, OTHER, ()))
    scene.pumped()
    before = scene.side.memory_bytes(scene.id)
    scene.receive(Ids(scene.id, tuple(entry.id for entry in long[1:]), answer=True))
    assert scene.side.memory_bytes(scene.id) > before + 80 * (len(long) - 1)
    scene.pumped()
    assert scene.side.memory_bytes(scene.id) == before


def test_ids_of_what_may_not_be_read_or_is_not_open_are_not_looked_at(scene: Scene) -> None:
    for asked, peer in ((Ids(scene.id, ()), scene.ada.public), (Ids(NOWHERE, ()), EVE)):
        assert not list(scene.side.prepare(asked, peer))
        assert not scene.receive(asked, peer)
