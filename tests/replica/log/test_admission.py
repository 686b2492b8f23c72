"""Admission and pending entries (spec/02-entry §6); each refusal is in admission.json."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from replica.log.admission import Admitted, Duplicate, Pending
from replica.log.body import Join
from replica.log.entry import Entry
from replica.log.log import Log
from replica.refusals import BodyMissing, ConversationMismatch, LamportInvalid, SignatureInvalid
from tests.replica.log.small_log import SmallLog, admitted
from tests.support.call_count import grows_linearly
from tests.support.stories import Story
from tests.support.writers import Writer, said


@pytest.fixture
def small() -> SmallLog:
    return SmallLog()


def test_an_entry_of_another_conversation_is_refused(small: SmallLog) -> None:
    with pytest.raises(ConversationMismatch):
        small.log.admit(Writer(9).genesis())


def test_entries_a_store_admitted_before_need_not_be_verified_again(small: SmallLog) -> None:
    forged = replace(small.grant, signature=bytes(64))
    with pytest.raises(SignatureInvalid):
        small.log.admit(forged)
    assert admitted(small.log.admit(forged, verified=True)) == [forged]


def test_an_entry_is_verified_before_it_is_pending(small: SmallLog) -> None:
    reply = small.say(small.bob, small.say(small.ada))
    with pytest.raises(SignatureInvalid):
        small.log.admit(replace(reply, signature=bytes(64)))
    assert not small.log.pending


def test_an_entry_waits_for_all_it_names(small: SmallLog) -> None:
    first, second = small.say(small.ada), small.say(small.bob)
    both = small.say(small.ada, first, second)
    verdict = small.log.admit(both)
    assert isinstance(verdict, Pending)
    assert set(verdict.missing) == {first.id, second.id}
    assert small.log.admission.pending_bytes == both.size_bytes
    assert isinstance(small.log.admit(second), Pending)
    assert admitted(small.log.admit(small.grant)) == [small.grant, second]
    assert admitted(small.log.admit(first)) == [first, both]
    assert (len(small.log), small.log.admission.pending_bytes) == (5, 0)


def test_missing_ancestors_are_found_behind_pending_entries(small: SmallLog) -> None:
    first, second = small.say(small.ada), small.say(small.bob)
    reply = small.say(small.ada, first, second)
    last = small.say(small.eve, reply)
    for entry in (last, reply):
        small.log.admit(entry)
    assert small.log.admission.missing_for(last.id, 9) == sorted([first.id, second.id])
    small.log.admit(second)
    assert small.log.admission.missing_for(last.id, 9) == [first.id]
    small.log.admission.drop([reply.id])
    assert small.log.admission.missing_for(last.id, 9) == [reply.id]


def test_a_missing_id_is_neither_admitted_nor_pending(small: SmallLog) -> None:
    first = small.say(small.ada)
    reply = small.say(small.bob, first, small.genesis)
    last = small.say(small.ada, reply)
    assert small.log.admission.all_missing() == set()
    small.log.admit(last)
    assert small.log.admission.all_missing() == {first.id, reply.id}
    small.log.admit(reply)
    assert small.log.admission.all_missing() == {first.id}
    small.log.admit(first)
    assert small.log.admission.all_missing() == set()


def test_nothing_is_missing_where_only_a_grant_is(small: SmallLog) -> None:
    entry = small.say(small.bob)
    assert small.log.admit(entry) == Pending(())
    assert small.log.admission.missing_for(entry.id, 9) == []


def test_a_lane_that_comes_backwards_is_released_at_once(small: SmallLog) -> None:
    lane = [small.say(small.ada) for _ in range(50)]
    for entry in reversed(lane[1:]):
        assert isinstance(small.log.admit(entry), Pending)
    assert admitted(small.log.admit(lane[0])) == lane


def test_a_grant_releases_the_entries_of_its_key(small: SmallLog) -> None:
    written = [small.say(small.bob) for _ in range(3)]
    for entry in written:
        small.log.admit(entry)
    assert small.log.pending.keys() == {e.id for e in written}
    assert admitted(small.log.admit(small.grant)) == [small.grant, *written]


def test_an_entry_that_a_granted_author_follows_needs_no_grant(small: SmallLog) -> None:
    first = small.say(small.eve)
    second = small.say(small.eve, first)
    reply = small.say(small.ada, second)
    for entries in ([first, second, reply], [reply, second, first], [second, reply, first]):
        log = Log(small.log.conversation)
        log.admit(small.genesis)
        *before, last = entries
        for entry in before:
            assert isinstance(log.admit(entry), Pending)
        assert admitted(log.admit(last)) == [first, second, reply]


def test_a_late_grant_to_the_author_who_follows_releases_it_too(small: SmallLog) -> None:
    note = small.say(small.eve)
    reply = small.say(small.bob, note)
    for entry in (note, reply):
        assert isinstance(small.log.admit(entry), Pending)
    assert admitted(small.log.admit(small.grant)) == [small.grant, note, reply]


def test_an_incomplete_entry_releases_none_it_follows(small: SmallLog) -> None:
    small.log.admit(small.grant)
    absent, note = small.say(small.eve), small.say(small.eve)
    reply = small.say(small.bob, note)
    for entry in (note, reply):
        assert isinstance(small.log.admit(entry), Pending)
    assert admitted(small.log.admit(absent)) == [absent, note, reply]


def test_authors_without_a_grant_release_no_entries_of_each_other(small: SmallLog) -> None:
    note = small.say(small.eve)
    reply = small.say(Writer(4), note)
    for entry in (note, reply):
        assert isinstance(small.log.admit(entry), Pending)
    assert set(small.log.entries) == {small.genesis.id}


def test_a_pending_entry_may_turn_out_to_break_a_rule(small: SmallLog) -> None:
    first = small.say(small.ada)
    liar = Writer(1)
    wrong = _with_lamport(liar, small, first, lamport=9)
    assert isinstance(small.log.admit(wrong), Pending)
    verdict = small.log.admit(first)
    assert isinstance(verdict, Admitted)
    assert verdict.entries == (first,)
    [(entry, error)] = verdict.refused
    assert entry == wrong
    assert isinstance(error, LamportInvalid)
    assert not small.log.pending


def _with_lamport(author: Writer, small: SmallLog, parent: Entry, lamport: int) -> Entry:
    entry = author.write(small.log.conversation, said("y"), parents=[parent])
    assert entry.body is not None
    return author._signed(replace(entry.header, lamport=lamport, epoch=5), entry.body)


def test_a_pending_entry_can_be_dropped_and_sent_again(small: SmallLog) -> None:
    first = small.say(small.ada)
    second = small.say(small.ada, first)
    small.log.admit(second)
    small.log.admission.drop([second.id, first.id])
    assert (len(small.log.pending), small.log.admission.pending_bytes) == (0, 0)
    assert admitted(small.log.admit(first)) == [first]
    assert admitted(small.log.admit(second)) == [second]


def test_a_dropped_entry_is_missing_for_all_that_follow_it(small: SmallLog) -> None:
    small.log.admit(small.grant)
    base = small.say(small.eve)
    left, right = small.say(small.eve, base), small.say(small.eve, base)
    top = small.say(small.eve, left, right)
    for entry in (base, left, right, top):
        assert isinstance(small.log.admit(entry), Pending)
    small.log.admission.drop([base.id, base.id])
    reply = small.say(small.bob, top)
    assert isinstance(small.log.admit(reply), Pending)
    assert admitted(small.log.admit(base)) == [base, left, right, top, reply]
    assert (len(small.log.pending), small.log.admission.pending_bytes) == (0, 0)


def test_an_entry_that_breaks_a_rule_releases_none_it_follows(small: SmallLog) -> None:
    note = small.say(small.eve)
    wrong = _with_lamport(Writer(1), small, note, lamport=9)
    assert isinstance(small.log.admit(wrong), Pending)
    verdict = small.log.admit(note)
    assert isinstance(verdict, Pending)
    [(entry, error)] = verdict.refused
    assert (entry, type(error)) == (wrong, LamportInvalid)
    assert small.log.pending.keys() == {note.id}
    with pytest.raises(LamportInvalid):
        small.log.admit(wrong)
    assert small.log.pending.keys() == {note.id}


def _strangers_chain(n: int) -> tuple[Log, list[Entry]]:
    """Return a log and a chain of entries that lack only a grant."""
    small = SmallLog()
    chain = [small.genesis]
    for _ in range(n):
        chain.append(small.eve.write(small.log.conversation, Join(), parents=chain[-1:], track=3))
    return small.log, chain[1:]


@pytest.mark.parametrize("arrival", ["in order", "backwards", "shuffled", "spokes"])
def test_the_work_for_pending_entries_grows_with_their_number_alone(arrival: str) -> None:
    def work_of(n: int) -> Callable[[], object]:
        log, entries = _spokes(n) if arrival == "spokes" else _strangers_chain(n)
        if arrival == "backwards":
            entries.reverse()
        if arrival == "shuffled":
            random.Random(n).shuffle(entries)
        return lambda: [log.admit(entry, verified=True) for entry in entries]

    assert grows_linearly(work_of, 150)


def _spokes(n: int) -> tuple[Log, list[Entry]]:
    """Return a chain whose every link also follows an entry of its own, those last."""
    small = SmallLog()
    notes = [small.say(Writer(100 + k)) for k in range(n)]
    at, chain = small.genesis, []
    for note in notes:
        chain.append(
            at := small.say(small.eve, *([at, note] if at is not small.genesis else [note]))
        )
    return small.log, [*chain, *reversed(notes)]


def test_an_entry_of_a_granted_author_releases_all_ancestors_in_one_walk() -> None:
    def work_of(n: int) -> Callable[[], object]:
        log, chain = _strangers_chain(n)
        ada = Writer(1)
        last = ada.write(log.conversation, Join(), parents=chain[-1:], track=3)
        return lambda: [log.admit(entry, verified=True) for entry in (*chain, last)]

    assert grows_linearly(work_of, 150)


def test_a_pending_entry_is_given_its_body(small: SmallLog) -> None:
    first = small.say(small.ada)
    second = small.say(small.ada, first)
    small.log.admit(replace(second, body=None))
    assert small.log.admit(second) == Duplicate()
    assert small.log.admission.pending_bytes == second.size_bytes
    assert admitted(small.log.admit(first)) == [first, second]


def test_a_control_entry_needs_its_body_even_to_be_pending(small: SmallLog) -> None:
    with pytest.raises(BodyMissing):
        small.log.admit(replace(small.grant, body=None))


STORY = Story(11)
STORY.grow(60)


def test_the_entries_of_one_admission_have_their_ancestors_before_them() -> None:
    for seed in range(20):
        entries = list(STORY.entries)
        random.Random(seed).shuffle(entries)
        log, here = Log(STORY.held.id), set()
        for entry in entries:
            verdict = log.admit(entry, verified=True)
            for one in verdict.entries if isinstance(verdict, Admitted) else ():
                assert here.issuperset(log.named(one.id))
                here.add(one.id)
        assert here == log.entries.keys()
