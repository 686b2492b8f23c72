"""The cover of digest and sync, updated as the log grows (spec/03-order §5)."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antiphon.conformance.naive_members import naive_covered
from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId, Track
from replica.link.messages import Entries
from replica.log import members
from replica.log.admission import Admitted
from replica.log.body import Body, Grant, Member, Revocation, Role
from replica.log.cuts import KeptIds
from replica.log.entry import Entry
from replica.log.log import Log
from replica.log.members import Membership
from replica.testing import Pair
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.call_count import grows_linearly
from tests.support.stories import Story, cut_at
from tests.support.writers import Writer, said


def _grown(entries: list[Entry]) -> Log:
    log = Log(entries[0].conversation)
    for entry in entries:
        log.admit(entry, verified=True)
    return log


class Cut:
    """An owner, and a writer with one message inside and one behind the cut."""

    def __init__(self) -> None:
        """Write them."""
        self.ada, self.bob = Writer(1), Writer(2)
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        grant = Member(Grant(self.bob.public, Role.WRITER))
        self.grant = self.ada.write(self.id, grant, parents=[self.genesis])
        self.kept = self.bob.write(self.id, said("kept"), parents=[self.genesis])
        revocation = Member(Revocation(self.bob.public, (cut_at(self.kept),)))
        self.revocation = self.ada.write(
            self.id, revocation, parents=[self.grant], listed=[self.kept]
        )
        self.spam = self.bob.write(self.id, said("spam"), parents=[self.kept])
        self.reply = self.ada.write(self.id, said("reply"), parents=[self.spam])

    @property
    def before(self) -> tuple[Entry, ...]:
        """Every entry up to the revocation."""
        return self.genesis, self.grant, self.kept, self.revocation


def test_the_cover_is_the_same_at_every_step_and_from_scratch() -> None:
    for seed in range(30):
        story = Story(seed)
        story.grow(50)
        entries = list(story.entries)
        random.Random(seed).shuffle(entries)
        log = Log(story.held.id)
        for entry in entries:
            log.admit(entry, verified=True)
            if log.genesis is not None:
                assert log.covered() == naive_covered(log)


class Counted(list[EntryId]):
    """Ids that count how often they are walked."""

    walks = 0

    def __iter__(self) -> Iterator[EntryId]:
        self.walks += 1
        return super().__iter__()


def test_a_cut_that_moves_is_judged_without_a_walk_over_all_entries_of_its_key() -> None:
    ada, bob = Writer(1), Writer(2)
    genesis = ada.genesis()
    conversation, line = genesis.conversation, [genesis]
    changed = ada.write(conversation, Member(Grant(bob.public, Role.WRITER)), parents=line)
    for _ in range(9):
        line.append(bob.write(conversation, said("x"), parents=line[-1:]))
    log = _grown([genesis, changed, *line[1:]])
    for kept in (line[7], line[6], line[5]):
        body = Member(Revocation(bob.public, (cut_at(kept),)))
        changed = ada.write(conversation, body, parents=[changed], listed=[kept])
        log.admit(changed)
        walked = log.cover._of[bob.public]
        assert log.covered() == naive_covered(log)
        assert not isinstance(walked, Counted) or not walked.walks  # the first cut walks
        log.cover._of[bob.public] = Counted(walked)


def test_a_cut_that_moves_copies_no_set_of_all_entries_of_its_key() -> None:
    ada, bob = Writer(1), Writer(2)
    genesis = ada.genesis()
    conversation, line = genesis.conversation, [genesis]
    changed = ada.write(conversation, Member(Grant(bob.public, Role.WRITER)), parents=line)
    for _ in range(9):
        line.append(bob.write(conversation, said("x"), parents=line[-1:]))
    log, found = _grown([genesis, changed, *line[1:]]), list[KeptIds]()
    for kept in (line[7], line[6], line[4]):
        body = Member(Revocation(bob.public, (cut_at(kept),)))
        changed = ada.write(conversation, body, parents=[changed], listed=[kept])
        log.admit(changed)
        ids = log.membership.kept[bob.public]
        assert isinstance(ids, KeptIds)
        found.append(ids)
    assert len({id(ids._ids) for ids in found}) == 1
    assert [sorted(ids) for ids in found] == [
        sorted(entry.id for entry in line[1 : at + 1]) for at in (7, 6, 4)
    ]


def test_an_entry_behind_a_cut_is_offered_once_a_covered_one_follows_it() -> None:
    scene = Cut()
    log = _grown([*scene.before])
    assert log.offered([scene.kept.id]) == [scene.kept.id]
    log.admit(scene.spam)
    assert log.offered([scene.spam.id]) == []
    log.admit(scene.reply)
    assert log.offered([scene.reply.id]) == [scene.spam.id, scene.reply.id]
    again = scene.ada.write(scene.id, said("again"), parents=[scene.spam])
    log.admit(again)
    assert log.offered([again.id]) == [again.id], "peers have the rest by now"


def test_a_hub_offers_nothing_that_lies_behind_a_cut() -> None:
    scene = Cut()
    hub = Hub(Writer(9).public, Policy())
    hub.begin_push(scene.ada.public).whole(Entries(scene.id, scene.before), 0.0)
    pair = Pair(hub, scene.ada.public)
    pair.client.open(scene.id)
    held = pair.client.shelf[scene.id]
    other = pair.connect(scene.ada.public)
    other.open(scene.id)
    other.send(Entries(scene.id, (scene.spam,)))
    assert scene.spam.id in hub.shelf[scene.id].log.entries
    assert scene.spam.id not in held.log.entries
    assert held.log.digest == hub.shelf[scene.id].log.digest
    other.send(Entries(scene.id, (scene.reply,)))
    assert {scene.spam.id, scene.reply.id} <= held.log.entries.keys()
    assert not held.log.pending


def _small_log(seed: int) -> tuple[ConversationId, list[Entry]]:
    """Return entries of an owner and of readers; it grants more to some, and all write anything."""
    rng = random.Random(seed)
    owner, *others = keys = [Writer(number) for number in range(1, 7)]
    genesis = owner.genesis()
    conversation, entries = genesis.conversation, [genesis]

    def write(author: Writer, body: Body) -> None:
        track = Track.MEMBERSHIP if isinstance(body, Member) else Track.CONVERSATION
        parents = [owner.last(conversation, track) or genesis]
        entries.append(author.write(conversation, body, parents=parents))

    for reader in others:
        write(owner, Member(Grant(reader.public, Role.READER)))
    for _ in range(12):
        change: Grant | Revocation = Grant(rng.choice(others).public, Role.WRITER)
        if rng.random() < 0.1:
            change = Revocation(rng.choice(others).public)
        write(rng.choice(keys), rng.choice([Member(change), said("x")]))
    return conversation, entries


@pytest.mark.parametrize("batch", [1, 3, 6])
def test_who_is_offered_what_came_holds_all_that_is_covered(batch: int) -> None:
    # ORD-17: also where changes that count and others come together.
    for seed in range(20):
        conversation, entries = _small_log(seed)
        log, peer = Log(conversation), Log(conversation)
        for at in range(0, len(entries), batch):
            held = set(log.entries)
            for entry in entries[at : at + batch]:
                log.admit(entry, verified=True)
            for entry_id in log.offered([i for i in log.entries if i not in held]):
                peer.admit(log.entries[entry_id], verified=True)
            assert naive_covered(log) <= peer.entries.keys(), seed
            assert peer.digest == log.digest, seed


def test_new_entries_are_covered_without_a_look_at_the_old_ones() -> None:
    def work_of(n: int) -> Callable[[], object]:
        scene = Cut()
        at, chain = scene.reply, []
        for _ in range(n):
            chain.append(at := scene.ada.write(scene.id, said("x"), parents=[at]))
        log = _grown([*scene.before, scene.spam, scene.reply])

        def work() -> None:
            for entry in chain:
                assert isinstance(log.admit(entry, verified=True), Admitted)
                assert entry.id in log.covered()

        return work

    assert grows_linearly(work_of, 100)


def test_one_frame_of_changes_is_folded_a_few_times_however_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folds = []
    fold = members.fold

    def counted(*args: Any) -> Membership:
        folds.append(args)
        return fold(*args)

    monkeypatch.setattr(members, "fold", counted)
    ada = Writer(1)
    genesis = ada.genesis()
    frame = [genesis]
    for number in range(100):
        grant = Member(Grant(Writer(100 + number).public, Role.READER))
        frame.append(ada.write(genesis.conversation, grant, parents=frame[-1:]))
    hub = Hub(Writer(9).public, Policy())
    hub.begin_push(ada.public).whole(Entries(genesis.conversation, tuple(frame)), 0.0)
    held = hub.shelf[genesis.conversation]
    assert len(held.log) == 101
    assert len(folds) < 5
    restored = Conversation.restore(held.id, held.log.entries.values())
    assert restored.log.digest == held.log.digest
    assert len(folds) < 7


def test_a_log_of_members_alone_is_covered_as_a_whole() -> None:
    scene = Cut()
    log = _grown([scene.genesis, scene.grant, scene.kept])
    assert log.covered() == log.entries.keys()
    assert log.offered([EntryId(bytes(32))]) == []
    assert Membership().covers(scene.kept) is False


def test_an_entry_of_a_key_that_only_a_void_grant_names_is_not_covered() -> None:
    scene, eve = Cut(), Writer(3)
    void = scene.bob.write(
        scene.id, Member(Grant(eve.public, Role.WRITER)), parents=[scene.genesis]
    )
    spam = eve.write(scene.id, said("spam"), parents=[scene.genesis])
    log = _grown([scene.genesis, scene.grant, scene.kept, void, spam])
    assert spam.id in log.entries
    assert not log.membership.kept
    assert log.covered() == log.entries.keys() - {spam.id}
