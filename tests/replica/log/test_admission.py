"""Admission and waiting (spec/02-entry §6); each refusal is in admission.json."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from replica.log.admission import Admitted, Duplicate, Pending
from replica.log.body import Join
from replica.log.entry import Entry
from replica.log.log import Log
from replica.refusals import BodyMissing, ConversationMismatch, LamportInvalid, SignatureInvalid
from tests.replica.log.pad import Pad, admitted
from tests.support.call_count import grows_linearly
from tests.support.stories import Story
from tests.support.writers import Writer, said


@pytest.fixture
def pad() -> Pad:
    return Pad()


def test_an_entry_of_another_conversation_is_refused(pad: Pad) -> None:
    with pytest.raises(ConversationMismatch):
        pad.log.admit(Writer(9).genesis())


def test_what_a_store_admitted_before_need_not_be_verified_again(pad: Pad) -> None:
    forged = replace(pad.grant, signature=bytes(64))
    with pytest.raises(SignatureInvalid):
        pad.log.admit(forged)
    assert admitted(pad.log.admit(forged, verified=True)) == [forged]


def test_what_waits_is_verified_first(pad: Pad) -> None:
    reply = pad.say(pad.bob, pad.say(pad.ada))
    with pytest.raises(SignatureInvalid):
        pad.log.admit(replace(reply, signature=bytes(64)))
    assert not pad.log.pending


def test_an_entry_waits_for_all_it_names(pad: Pad) -> None:
    first, second = pad.say(pad.ada), pad.say(pad.bob)
    both = pad.say(pad.ada, first, second)
    verdict = pad.log.admit(both)
    assert isinstance(verdict, Pending)
    assert set(verdict.missing) == {first.id, second.id}
    assert pad.log.admission.pending_bytes == both.size_bytes
    assert isinstance(pad.log.admit(second), Pending)
    assert admitted(pad.log.admit(pad.grant)) == [pad.grant, second]
    assert admitted(pad.log.admit(first)) == [first, both]
    assert (len(pad.log), pad.log.admission.pending_bytes) == (5, 0)


def test_what_is_lacking_is_looked_for_behind_all_that_waits(pad: Pad) -> None:
    first, second = pad.say(pad.ada), pad.say(pad.bob)
    reply = pad.say(pad.ada, first, second)
    last = pad.say(pad.eve, reply)
    for entry in (last, reply):
        pad.log.admit(entry)
    assert pad.log.admission.missing_for(last.id) == sorted([first.id, second.id])
    pad.log.admit(second)
    assert pad.log.admission.missing_for(last.id) == [first.id]
    pad.log.admission.drop([reply.id])
    assert pad.log.admission.missing_for(last.id) == [reply.id]


def test_nothing_is_lacking_where_a_grant_is(pad: Pad) -> None:
    entry = pad.say(pad.bob)
    assert pad.log.admit(entry) == Pending(())
    assert pad.log.admission.missing_for(entry.id) == []


def test_a_lane_that_comes_backwards_is_released_at_once(pad: Pad) -> None:
    lane = [pad.say(pad.ada) for _ in range(50)]
    for entry in reversed(lane[1:]):
        assert isinstance(pad.log.admit(entry), Pending)
    assert admitted(pad.log.admit(lane[0])) == lane


def test_a_grant_releases_what_its_key_wrote(pad: Pad) -> None:
    written = [pad.say(pad.bob) for _ in range(3)]
    for entry in written:
        pad.log.admit(entry)
    assert pad.log.pending.keys() == {e.id for e in written}
    assert admitted(pad.log.admit(pad.grant)) == [pad.grant, *written]


def test_what_a_granted_author_follows_needs_no_grant(pad: Pad) -> None:
    first = pad.say(pad.eve)
    second = pad.say(pad.eve, first)
    reply = pad.say(pad.ada, second)
    for entries in ([first, second, reply], [reply, second, first], [second, reply, first]):
        log = Log(pad.log.conversation)
        log.admit(pad.genesis)
        *before, last = entries
        for entry in before:
            assert isinstance(log.admit(entry), Pending)
        assert admitted(log.admit(last)) == [first, second, reply]


def test_a_late_grant_to_the_follower_vouches_too(pad: Pad) -> None:
    note = pad.say(pad.eve)
    reply = pad.say(pad.bob, note)
    for entry in (note, reply):
        assert isinstance(pad.log.admit(entry), Pending)
    assert admitted(pad.log.admit(pad.grant)) == [pad.grant, note, reply]


def test_nobody_vouches_for_what_others_lack(pad: Pad) -> None:
    pad.log.admit(pad.grant)
    absent, note = pad.say(pad.eve), pad.say(pad.eve)
    reply = pad.say(pad.bob, note)
    for entry in (note, reply):
        assert isinstance(pad.log.admit(entry), Pending)
    assert admitted(pad.log.admit(absent)) == [absent, note, reply]


def test_strangers_cannot_vouch_for_each_other(pad: Pad) -> None:
    note = pad.say(pad.eve)
    reply = pad.say(Writer(4), note)
    for entry in (note, reply):
        assert isinstance(pad.log.admit(entry), Pending)
    assert set(pad.log.entries) == {pad.genesis.id}


def test_a_waiting_entry_may_turn_out_to_be_wrong(pad: Pad) -> None:
    first = pad.say(pad.ada)
    liar = Writer(1)
    wrong = _with_lamport(liar, pad, first, lamport=9)
    assert isinstance(pad.log.admit(wrong), Pending)
    verdict = pad.log.admit(first)
    assert isinstance(verdict, Admitted)
    assert verdict.entries == (first,)
    [(entry, error)] = verdict.refused
    assert entry == wrong
    assert isinstance(error, LamportInvalid)
    assert not pad.log.pending


def _with_lamport(author: Writer, pad: Pad, parent: Entry, lamport: int) -> Entry:
    entry = author.write(pad.log.conversation, said("y"), parents=[parent])
    assert entry.body is not None
    return author._signed(replace(entry.header, lamport=lamport, epoch=5), entry.body)


def test_what_waits_can_be_forgotten_and_sent_again(pad: Pad) -> None:
    first = pad.say(pad.ada)
    second = pad.say(pad.ada, first)
    pad.log.admit(second)
    pad.log.admission.drop([second.id, first.id])
    assert (len(pad.log.pending), pad.log.admission.pending_bytes) == (0, 0)
    assert admitted(pad.log.admit(first)) == [first]
    assert admitted(pad.log.admit(second)) == [second]


def test_what_was_forgotten_is_lacked_by_all_that_follows_it(pad: Pad) -> None:
    pad.log.admit(pad.grant)
    base = pad.say(pad.eve)
    left, right = pad.say(pad.eve, base), pad.say(pad.eve, base)
    top = pad.say(pad.eve, left, right)
    for entry in (base, left, right, top):
        assert isinstance(pad.log.admit(entry), Pending)
    pad.log.admission.drop([base.id, base.id])
    reply = pad.say(pad.bob, top)
    assert isinstance(pad.log.admit(reply), Pending)
    assert admitted(pad.log.admit(base)) == [base, left, right, top, reply]
    assert (len(pad.log.pending), pad.log.admission.pending_bytes) == (0, 0)


def test_nobody_is_vouched_for_by_an_entry_that_breaks_a_rule(pad: Pad) -> None:
    note = pad.say(pad.eve)
    wrong = _with_lamport(Writer(1), pad, note, lamport=9)
    assert isinstance(pad.log.admit(wrong), Pending)
    verdict = pad.log.admit(note)
    assert isinstance(verdict, Pending)
    [(entry, error)] = verdict.refused
    assert (entry, type(error)) == (wrong, LamportInvalid)
    assert pad.log.pending.keys() == {note.id}
    with pytest.raises(LamportInvalid):
        pad.log.admit(wrong)
    assert pad.log.pending.keys() == {note.id}


def _strangers_chain(n: int) -> tuple[Log, list[Entry]]:
    """Return a log and a chain of entries that lack nothing but a grant."""
    pad = Pad()
    chain = [pad.genesis]
    for _ in range(n):
        chain.append(pad.eve.write(pad.log.conversation, Join(), parents=chain[-1:], track=3))
    return pad.log, chain[1:]


@pytest.mark.parametrize("arrival", ["in order", "backwards", "shuffled", "spokes"])
def test_the_work_of_waiting_grows_with_the_entries_alone(arrival: str) -> None:
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
    pad = Pad()
    notes = [pad.say(Writer(100 + k)) for k in range(n)]
    at, chain = pad.genesis, []
    for note in notes:
        chain.append(at := pad.say(pad.eve, *([at, note] if at is not pad.genesis else [note])))
    return pad.log, [*chain, *reversed(notes)]


def test_a_granted_author_lets_all_in_with_one_walk() -> None:
    def work_of(n: int) -> Callable[[], object]:
        log, chain = _strangers_chain(n)
        ada = Writer(1)
        last = ada.write(log.conversation, Join(), parents=chain[-1:], track=3)
        return lambda: [log.admit(entry, verified=True) for entry in (*chain, last)]

    assert grows_linearly(work_of, 150)


def test_a_body_reaches_an_entry_that_waits(pad: Pad) -> None:
    first = pad.say(pad.ada)
    second = pad.say(pad.ada, first)
    pad.log.admit(replace(second, body=None))
    assert pad.log.admit(second) == Duplicate()
    assert pad.log.admission.pending_bytes == second.size_bytes
    assert admitted(pad.log.admit(first)) == [first, second]


def test_a_control_entry_needs_its_body_even_to_wait(pad: Pad) -> None:
    with pytest.raises(BodyMissing):
        pad.log.admit(replace(pad.grant, body=None))


STORY = Story(11)
STORY.grow(60)


def test_what_one_admission_names_has_its_ancestors_before_it() -> None:
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
