"""Roles: seniority, cuts, resignations, against a naive fixpoint (spec/03-order §2)."""

import random
from typing import Any

import pytest

from antiphon.conformance.naive_members import naive_membership
from replica.conversation.conversation import Conversation
from replica.ids import EntryId, Track
from replica.log import members
from replica.log.body import Grant, Join, Member, Revocation, Role
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.log.log import Log
from replica.log.members import Membership
from tests.support.stories import Story, cut_at
from tests.support.writers import Writer, said

SEEDS = range(75)


class Grants:
    """Random grants and revocations among a few keys, with entries to cut off."""

    def __init__(self, seed: int) -> None:
        """Let two owners and five other keys change each other's roles."""
        self.random = random.Random(seed)
        self.writers = [Writer(n) for n in range(1, 8)]
        self.genesis = self.writers[0].genesis([w.public for w in self.writers[:2]])
        self.log = Log(self.genesis.conversation)
        self.log.admit(self.genesis)
        self.pending: list[Entry] = []
        for _ in range(30):
            self._step()

    def _step(self) -> None:
        author, target = self.random.choices(self.writers, [5, 4, 3, 2, 1, 1, 1], k=2)
        written = [e for e in self.log.entries.values() if e.header.author == target.public]
        # Careless authors follow the genesis, whatever else they hold.
        heads = [self.log.entries[i] for i in self.log.membership_heads()]
        parents = heads if heads and self.random.random() < 0.5 else [self.genesis]
        choice = self.random.random()
        if choice < 0.3:
            entry = author.write(self.log.conversation, said("x"), parents=[self.genesis])
        elif choice < 0.7:
            roles = [Role.OWNER, Role.OWNER, Role.WRITER, Role.HOST, Role.READER, 9]
            body = Member(Grant(target.public, self.random.choice(roles)))
            entry = author.write(self.log.conversation, body, parents=parents)
        else:
            kept = self.random.sample(written, min(len(written), self.random.randint(0, 4)))
            body = Member(Revocation(target.public, tuple(cut_at(e) for e in kept)))
            entry = author.write(self.log.conversation, body, parents=parents, listed=kept)
        self.log.admit(entry)


def test_the_fold_is_the_naive_fixpoint() -> None:
    revoked = resigned = 0
    for seed in SEEDS:
        log = Grants(seed).log
        naive, fold = naive_membership(log), log.membership
        assert fold.roles == naive.roles
        assert fold.kept == naive.kept
        assert fold.ranks == naive.ranks
        revoked += len(fold.kept)
        resigned += len(fold.resignations)
    assert revoked > len(SEEDS)
    assert resigned > len(SEEDS) // 10


def test_the_fold_that_grew_is_the_fold_from_scratch() -> None:
    for seed in SEEDS[:30]:
        history = Grants(seed)
        log = Log(history.log.conversation)
        for entry in history.log.entries.values():
            log.admit(entry, verified=True)
            now, naive = log.membership, naive_membership(log)
            assert (now.roles, now.ranks, now.kept) == (naive.roles, naive.ranks, naive.kept)
            assert now.resignations == naive.resigned


def test_grants_one_by_one_need_no_full_fold_each(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = []
    fold = members.fold
    monkeypatch.setattr(members, "fold", lambda *args: folds.append(args) or fold(*args))
    ada = Writer(1)
    at = ada.genesis()
    held = Conversation(at.conversation)
    held.admit(at)
    for number in range(50):
        body = Member(Grant(Writer(100 + number).public, Role.READER))
        at = ada.write(held.id, body, parents=[at])
        held.admit(at)
        assert held.is_member(Writer(100 + number).public)
    assert len(folds) == 1


def test_the_fold_of_stories_is_the_naive_fixpoint() -> None:
    for seed in SEEDS[:20]:
        story = Story(seed)
        story.grow(60)
        naive = naive_membership(story.held.log)
        assert story.held.log.membership.kept == naive.kept


def test_the_fold_is_independent_of_the_order_of_arrival() -> None:
    for seed in SEEDS[:25]:
        log = Grants(seed).log
        entries = [*log.entries.values(), *log.pending.values()]
        random.Random(seed).shuffle(entries)
        other = Log(log.conversation)
        for entry in entries:
            other.admit(entry, verified=True)
        assert other.entries.keys() == log.entries.keys()
        assert other.membership == log.membership
        assert other.covered() == log.covered()
        assert other.digest == log.digest


def test_the_fold_needs_covered_entries_alone() -> None:
    for seed in SEEDS[:25]:
        log = Grants(seed).log
        other = Log(log.conversation)
        for entry in log.entries.values():
            if entry.id in log.covered():
                other.admit(entry, verified=True)
        assert other.entries.keys() == log.covered()
        assert other.membership.kept.keys() == log.membership.kept.keys()
        assert other.membership.roles == log.membership.roles
        assert other.covered() == log.covered()
        assert other.digest == log.digest


def test_a_junior_never_changes_the_roles_of_a_senior() -> None:
    # Whatever the second owner and its juniors write, the first owner's entries count.
    for seed in SEEDS[:25]:
        history = Grants(seed)
        first = history.writers[0].public
        own = [
            entry
            for entry in history.log.entries.values()
            if entry.header.author == first
            and isinstance(body := history.log.body(entry.id), Member)
            and isinstance(body.change, Revocation)
            and body.change.key == first
        ]
        if not own:
            assert first not in history.log.membership.kept


def test_no_member_without_a_role() -> None:
    empty = Membership()
    ada = Writer(1)
    genesis = ada.genesis()
    assert not empty.is_member(ada.public)
    assert not empty.may_write(ada.public, 99)
    assert not empty.covers(genesis)
    assert not empty.is_visible(genesis)


def test_a_removed_key_keeps_its_roles_and_is_no_member() -> None:
    ada, hal = Writer(1), Writer(2)
    genesis = ada.genesis()
    log = Log(genesis.conversation)
    log.admit(genesis)
    grant = ada.write(log.conversation, Member(Grant(hal.public, Role.HOST)), parents=[genesis])
    log.admit(grant)
    assert (log.membership.members(), log.membership.hosts()) == (
        (ada.public, hal.public), (hal.public,)
    )  # fmt: skip
    removal = Member(Revocation(hal.public, ()))
    log.admit(ada.write(log.conversation, removal, parents=[grant]))
    assert Role.HOST in log.membership.roles[hal.public]
    assert (log.membership.members(), log.membership.hosts()) == ((ada.public,), ())


def test_membership_at_heads_ignores_later_entries() -> None:
    ada, bob = Writer(1), Writer(2)
    genesis = ada.genesis()
    log = Log(genesis.conversation)
    grant = ada.write(log.conversation, Member(Grant(bob.public, Role.WRITER)), parents=[genesis])
    revocation = ada.write(log.conversation, Member(Revocation(bob.public)), parents=[grant])
    for entry in (genesis, grant, revocation):
        log.admit(entry)
    assert log.membership_heads() == (revocation.id,)
    assert not log.membership.is_member(bob.public)
    assert log.roster.at((grant.id,)).is_member(bob.public)
    assert not log.roster.at(()).is_member(bob.public)
    assert log.roster.at((revocation.id,)) == log.membership


def test_more_heads_than_a_seal_lists_are_cut_to_64() -> None:
    genesis = Writer(1).genesis()
    log = Log(genesis.conversation)
    log.admit(genesis)
    for number in range(66):
        body = Member(Grant(Writer(100 + number).public, Role.READER))
        ada = Writer(1, epoch=number + 1)
        log.admit(ada.write(log.conversation, body, parents=[genesis]), verified=True)
    heads = log.membership_heads()
    assert len(heads) == 64
    assert list(heads) == sorted(heads)
    # A verdict by 64 heads stays the same, however many there are now.
    assert len(log.roster.at(heads).roles) == 65
    assert len(log.membership.roles) == 67


def test_a_join_by_a_host_gathers_more_heads_than_a_seal_lists() -> None:
    log, hal, eve = _many_heads(130)
    for _ in range(3):
        assert len(log.membership_heads()) <= 64
        parents = log.roster.heads_to_join()
        if not parents:
            break
        listed = [log.entries[i] for i in parents]
        log.admit(hal.write(log.conversation, Join(), parents=listed, track=Track.MEMBERSHIP))
    assert log.roster.at(log.membership_heads()) == log.membership
    # A reader's JOIN gathers nothing: it could displace the host's.
    before = log.membership_heads()
    listed = [log.entries[i] for i in before]
    log.admit(eve.write(log.conversation, Join(), parents=listed, track=Track.MEMBERSHIP))
    assert log.membership_heads() == before


def _many_heads(count: int) -> tuple[Log, Writer, Writer]:
    """Return a log of an owner who follows nothing, a host and a reader."""
    ada, hal, eve = Writer(1), Writer(2), Writer(3)
    genesis = ada.genesis()
    log = Log(genesis.conversation)
    log.admit(genesis)
    grants = [(hal.public, Role.HOST), (eve.public, Role.READER)]
    grants += [(Writer(100 + n).public, Role.READER) for n in range(count - 2)]
    for number, (key, role) in enumerate(grants):
        author = Writer(1, epoch=number + 1)
        body = Member(Grant(key, role))
        log.admit(author.write(log.conversation, body, parents=[genesis]), verified=True)
    return log, hal, eve


def test_a_reader_adds_nothing_to_the_membership_heads() -> None:
    log, _, eve = _many_heads(3)
    genesis = log.genesis
    assert genesis is not None
    before = log.membership_heads()
    for number in range(70):
        spammer = Writer(3, epoch=number + 5)
        body = Member(Grant(spammer.public, Role.OWNER)) if number % 2 else Join()
        log.admit(
            spammer.write(log.conversation, body, parents=[genesis], track=Track.MEMBERSHIP),
            verified=True,
        )
    assert len(log.covered()) == len(log) - 70, "nor to the digest"
    assert log.membership_heads() == before
    assert eve.public in log.membership.roles


def test_the_membership_behind_all_heads_is_the_membership() -> None:
    for seed in SEEDS:
        log = Grants(seed).log
        heads = log.membership_heads()
        assert len(heads) < 64
        now, behind = log.membership, log.roster.at(heads)
        assert (behind.roles, behind.ranks, behind.kept) == (now.roles, now.ranks, now.kept)


def test_the_fold_is_made_once_for_however_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = []
    fold = members.fold

    def counted(*args: Any) -> Membership:
        folds.append(args)
        return fold(*args)

    monkeypatch.setattr(members, "fold", counted)
    log, _, eve = _many_heads(100)
    assert len(log.membership.roles) == 101
    assert len(folds) == 1
    # Nor is it repeated for changes that cannot count.
    for number in range(5):
        assert log.genesis is not None
        spammer = Writer(3, epoch=number + 5)
        body = Member(Grant(eve.public, Role.OWNER))
        log.admit(spammer.write(log.conversation, body, parents=[log.genesis]))
        assert not log.membership.may_write(eve.public, Kind.MEMBER)
    assert len(folds) == 1


def test_an_uncovered_change_is_no_membership_head() -> None:
    ada, bea = Writer(1), Writer(2)
    genesis = ada.genesis([ada.public, bea.public])
    log = Log(genesis.conversation)
    spam = bea.write(
        log.conversation, Member(Grant(Writer(3).public, Role.OWNER)), parents=[genesis]
    )
    revocation = ada.write(log.conversation, Member(Revocation(bea.public)), parents=[genesis])
    for entry in (genesis, spam, revocation):
        log.admit(entry)
    assert log.membership_heads() == (revocation.id,)
    assert EntryId(spam.id) not in log.covered()


# --- ranks --------------------------------------------------------------------------


class Ranks:
    """An owner who grants ownership to a second key, which grants it to a third."""

    def __init__(self) -> None:
        self.first, self.second, self.third = (Writer(n) for n in (1, 2, 3))
        self.genesis = self.first.genesis()
        self.log = Log(self.genesis.conversation)
        self.log.admit(self.genesis)
        self.change(self.first, Grant(self.second.public, Role.OWNER))
        self.change(self.second, Grant(self.third.public, Role.OWNER))

    def change(self, author: Writer, change: Grant | Revocation) -> None:
        parents = [self.log.entries[i] for i in self.log.membership_heads()] or [self.genesis]
        self.log.admit(author.write(self.log.conversation, Member(change), parents=parents))

    def is_member(self, writer: Writer) -> bool:
        return self.log.membership.is_member(writer.public)


def test_an_owner_is_senior_to_those_it_made_owners_and_no_one_is_to_itself() -> None:
    scene = Ranks()
    scene.change(scene.third, Revocation(scene.second.public))
    assert scene.is_member(scene.second)
    scene.change(scene.second, Revocation(scene.third.public))
    assert not scene.is_member(scene.third)
    assert [scene.log.membership.ranks[w.public] for w in (scene.first, scene.second)] == [
        (0, 0),
        (1, 0),
    ]
    assert scene.log.membership.ranks[scene.third.public] == (2, 0)


def test_a_removed_owner_keeps_its_role_and_owns_no_more() -> None:
    scene, stranger = Ranks(), Writer(4)
    keys = [writer.public for writer in (scene.first, scene.second, scene.third, stranger)]
    scene.change(scene.first, Revocation(scene.second.public))
    membership = scene.log.membership
    assert [membership.is_owner(key) for key in keys] == [True, False, False, False]
    assert [membership.has_owner_role(key) for key in keys] == [True, True, False, False]
    assert membership.owner_keys() == {*keys[:2]}, "the grant to the third is behind the cut"


@pytest.mark.parametrize("senior_first", [True, False])
def test_the_rank_of_a_key_is_that_of_its_least_grant(senior_first: bool) -> None:
    scene, bob = Ranks(), Writer(4)
    for author in (scene.first, scene.second)[:: 1 if senior_first else -1]:
        scene.change(author, Grant(bob.public, Role.WRITER))
    assert scene.log.membership.ranks[bob.public] == (1, 0)
    at_heads = scene.log.roster.at(scene.log.membership_heads())
    assert at_heads.ranks == scene.log.membership.ranks
    scene.change(scene.second, Revocation(bob.public))
    assert scene.is_member(bob), "equal rank is not senior"
    scene.change(scene.first, Revocation(bob.public))
    assert not scene.is_member(bob)


def test_folds_at_older_heads_are_cached_in_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "_FOLDS_CACHED_MAX", 2)
    scene = Ranks()
    heads = [(entry_id,) for entry_id in scene.log.entries]
    for one in heads:
        scene.log.roster.at(one)
    assert list(scene.log.roster._at) == heads[-2:]
