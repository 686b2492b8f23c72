"""What a peer's heads say about its log (spec/05-reconcile §2)."""

import pytest

from replica import limits
from replica.ids import EntryId, Position
from replica.link.comparison import HeldLanes, compare_heads, cursor_of, everything, lacking
from replica.log.entry import Entry
from replica.log.log import Log
from tests.support.writers import Writer, said


def line(count: int, writer: Writer) -> list[Entry]:
    entries = [writer.genesis()]
    for number in range(count):
        text = said(str(number))
        entries.append(writer.write(entries[0].conversation, text, parents=entries[-1:]))
    return entries


def log_of(entries: list[Entry]) -> Log:
    log = Log(entries[0].conversation)
    for entry in entries:
        log.admit(entry)
    return log


def test_a_known_head_shows_that_the_peer_holds_its_lane_up_to_it() -> None:
    entries = line(4, Writer(1))
    verdict = compare_heads(log_of(entries), [entries[2].position])
    assert verdict.held == {entries[1].id, entries[2].id}
    assert (verdict.wanted, verdict.diverged) == (frozenset(), ())


def test_a_head_beyond_our_lane_is_wanted_and_ours_need_not_be_sent() -> None:
    entries = line(4, Writer(1))
    verdict = compare_heads(log_of(entries[:3]), [entries[4].position])
    assert verdict.wanted == {entries[4].id}
    assert verdict.held == {entries[1].id, entries[2].id}
    assert verdict.diverged == ()


def test_another_entry_at_a_position_of_ours_is_a_divergence() -> None:
    writer = Writer(1)
    entries = line(1, writer)
    twin = writer.restored()
    ours = writer.write(entries[0].conversation, said("ours"), parents=entries[-1:])
    theirs = twin.write(entries[0].conversation, said("theirs"), parents=entries[-1:])
    verdict = compare_heads(log_of([*entries, ours]), [theirs.position])
    assert verdict.diverged == (theirs.position,)
    assert verdict.wanted == {theirs.id}
    assert verdict.held == frozenset(), "which part of the lane it has cannot be told"


def test_a_lane_we_know_nothing_of_is_wanted_alone() -> None:
    entries = line(2, Writer(1))
    other = Position(Writer(2).genesis().header.lane, 7, EntryId(b"?" * 32))
    verdict = compare_heads(log_of(entries), [other])
    assert (verdict.wanted, verdict.held) == ({other.id}, frozenset())


def test_of_a_forked_lane_only_the_chain_of_the_head_is_held() -> None:
    writer = Writer(1)
    entries = line(2, writer)
    twin = writer.restored()
    conversation = entries[0].conversation
    ours = [writer.write(conversation, said(str(n)), parents=entries[-1:]) for n in (1, 2)]
    theirs = twin.write(conversation, said("theirs"), parents=entries[-1:])
    log = log_of([*entries, *ours, theirs])
    verdict = compare_heads(log, [ours[1].position])
    assert verdict.held == {e.id for e in (*entries[1:], *ours)}
    assert len(verdict.held) == 4
    assert set(lacking(log, verdict.held)) == {entries[0], theirs}
    assert compare_heads(log, [ours[1].position, theirs.position]).held >= {theirs.id, ours[0].id}


def test_entries_admitted_during_a_walk_are_left_out() -> None:
    writer = Writer(1)
    entries = line(3, writer)
    log = log_of(entries)
    found = lacking(log, HeldLanes(log))
    assert next(found) == entries[0]
    log.admit(writer.write(entries[0].conversation, said("late"), parents=entries[-1:]))
    assert list(found) == entries[1:]


def test_everything_is_what_a_peer_without_entries_lacks() -> None:
    entries = line(3, Writer(1))
    assert everything(log_of(entries)) == entries


def test_a_cursor_names_the_latest_heads_as_many_as_a_watch_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Watch with more is refused, and would be for good."""
    genesis = Writer(1).genesis()
    twins = [Writer(1, epoch=number + 2) for number in range(5)]
    spoken = [twin.write(genesis.conversation, said("x"), parents=[genesis]) for twin in twins]
    late = twins[0].write(genesis.conversation, said("y"), parents=[spoken[1]])
    log = log_of([genesis, *spoken, late])
    assert sorted(cursor_of(log)) == sorted(log.heads())
    monkeypatch.setattr(limits, "HEADS_PER_FRAME_MAX", 3)
    latest = sorted([*spoken[1:], late], key=lambda entry: entry.order_key)[-3:]
    assert {head.id for head in cursor_of(log)} == {entry.id for entry in latest}
    assert late in latest
