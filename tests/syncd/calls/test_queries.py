"""Rights of callers, and answers without a link (spec/04-link §7 to §9)."""

import random
from dataclasses import replace

import pytest

from replica import limits
from replica.ids import EntryId, Lane, Track
from replica.link.messages import Fault
from replica.log.body import Cut, Member, Revocation, Role
from replica.refusals import (
    ArgumentInvalid,
    BodyDigestMismatch,
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    NotAllowed,
    PendingFull,
    SignatureInvalid,
)
from syncd.calls import queries
from syncd.calls.queries import (
    FETCHED_BYTES,
    PASSED_MAX,
    Fetched,
    Held,
    LaneRange,
    Pending,
    Right,
    Uncovered,
    Unknown,
    fate_of,
    fetch,
    outcomes,
    permitted,
)
from tests.support.call_count import calls, grows_linearly
from tests.support.sample import Sample
from tests.support.stories import answer
from tests.support.writers import Writer, said

ABSENT = EntryId(b"\0" * 32)


@pytest.fixture
def sample() -> Sample:
    return Sample()


# --- rights -----------------------------------------------------------------------


def test_a_member_reads_and_a_stranger_gets_the_answer_for_an_absent_conversation(
    sample: Sample,
) -> None:
    assert permitted(sample.held, sample.owner.public, Right.READ) is sample.held
    answers = []
    for held in (sample.held, None):
        for right in Right:
            with pytest.raises(ConversationUnknown) as refused:
                permitted(held, Writer(9).public, right)
            answers.append((refused.value.detail, refused.value.missing))
    assert len(set(answers)) == 1


def test_a_revoked_member_is_a_stranger(sample: Sample) -> None:
    writer = Writer(2)
    sample.grant(writer, Role.WRITER)
    assert permitted(sample.held, writer.public, Right.READ)
    grants = [sample.held.log.entries[i] for i in sample.held.log.membership_heads()]
    sample.add(sample.owner.write(sample.id, Member(Revocation(writer.public)), parents=grants))
    with pytest.raises(ConversationUnknown):
        permitted(sample.held, writer.public, Right.READ)


def test_readers_write_no_blobs(sample: Sample) -> None:
    reader, both, host = Writer(2), Writer(3), Writer(4)
    sample.grant(reader, Role.READER)
    sample.grant(both, Role.READER, Role.WRITER)
    sample.grant(host, Role.HOST)
    with pytest.raises(NotAllowed):
        permitted(sample.held, reader.public, Right.WRITE_BLOBS)
    for writer in (both, host, sample.owner):
        assert permitted(sample.held, writer.public, Right.WRITE_BLOBS) is sample.held


def test_only_an_owner_deletes(sample: Sample) -> None:
    writer, second = Writer(2), Writer(3)
    sample.grant(writer, Role.WRITER, Role.HOST)
    sample.grant(second, Role.OWNER)
    with pytest.raises(NotAllowed):
        permitted(sample.held, writer.public, Right.DELETE)
    for owner in (sample.owner, second):
        assert permitted(sample.held, owner.public, Right.DELETE) is sample.held


# --- Resolve ------------------------------------------------------------------------


def test_an_entry_is_unknown_until_it_is_held(sample: Sample) -> None:
    (entry,) = sample.chain(1)
    assert fate_of(sample.held, entry.id) == Unknown()
    sample.add(entry)
    assert fate_of(sample.held, entry.id) == Held(None, None)


def test_an_entry_that_was_refused_is_uncovered_until_its_author_is_granted_a_role(
    sample: Sample,
) -> None:
    reader = Writer(2)
    sample.grant(reader, Role.READER)
    entry = sample.add(reader.write(sample.id, said("x"), parents=[sample.genesis]))
    assert fate_of(sample.held, entry.id) == Uncovered()
    sample.grant(reader, Role.WRITER)
    assert fate_of(sample.held, entry.id) == Held(None, None)


def test_an_entry_of_another_conversation_is_unknown(sample: Sample) -> None:
    other = Sample(Writer(7))
    here, elsewhere = sample.say(sample.genesis), other.say(other.genesis)
    assert fate_of(sample.held, here.id) == Held(None, None)
    for entry in (other.genesis, elsewhere):
        assert fate_of(sample.held, entry.id) == Unknown()


def test_a_pending_entry_names_all_missing_entries(sample: Sample) -> None:
    line = sample.chain(4)
    other = Writer(2).write(sample.id, said("never sent"), parents=[sample.genesis])
    last = sample.owner.write(sample.id, said("both"), parents=[line[-1], other])
    sample.add(line[1], line[3], last)
    assert fate_of(sample.held, last.id) == Pending(tuple(sorted((line[2].id, other.id))))
    sample.add(line[2])
    assert fate_of(sample.held, last.id) == Pending(tuple(sorted((line[0].id, other.id))))


def test_a_pending_entry_waits_for_the_entries_its_body_lists(sample: Sample) -> None:
    other = Writer(2)
    lost = other.write(sample.id, said("never sent"), parents=[sample.genesis])
    cut = Cut(other.epoch, Track.CONVERSATION, 0, lost.id)
    body = Member(Revocation(other.public, (cut,)))
    revoked = sample.owner.write(sample.id, body, parents=[sample.genesis], listed=[lost])
    after = sample.owner.write(sample.id, Member(Revocation(Writer(3).public)), parents=[revoked])
    sample.add(revoked, after)
    assert fate_of(sample.held, after.id) == Pending((lost.id,))


def test_an_entry_that_lacks_only_a_grant_waits_for_no_entry(sample: Sample) -> None:
    stranger = Writer(2).write(sample.id, said("let me in"), parents=[sample.genesis])
    sample.add(stranger)
    assert fate_of(sample.held, stranger.id) == Pending(())


def test_the_fate_of_a_request_has_its_seal_and_generation(sample: Sample) -> None:
    host = Writer(6)
    sample.grant(host, Role.HOST)
    request = sample.ask(host, sample.genesis)
    assert fate_of(sample.held, request.id) == Held(None, None)
    seal = sample.seal(host, request)
    assert fate_of(sample.held, request.id) == Held(seal.id, None)
    generation = sample.add(host.write(sample.id, answer(), parents=[seal], basis=seal))
    assert fate_of(sample.held, request.id) == Held(seal.id, generation.id)
    assert fate_of(sample.held, seal.id) == Held(None, None)


# --- Fetch ----------------------------------------------------------------------------


def lane_of(sample: Sample, start: int, end: int) -> LaneRange:
    return LaneRange(Lane(sample.owner.public, sample.owner.epoch, Track.CONVERSATION), start, end)


def fetched(sample: Sample, *ids: EntryId, ranges: tuple[LaneRange, ...] = ()) -> list[EntryId]:
    responses = list(filter(None, fetch(sample.held, ids, ranges)))
    return [entry.id for response in responses for entry in response.entries]


def test_entries_are_in_send_order_and_absent_ids_are_last(sample: Sample) -> None:
    line = sample.chain(3)
    sample.add(*line)
    sample.grant(Writer(2), Role.READER)
    (grant,) = (i for i in sample.held.log.membership_heads())
    absent = [EntryId(bytes([number] * 32)) for number in range(20, 0, -1)]
    (response,) = fetch(sample.held, [line[2].id, *absent, grant, line[0].id, line[0].id], ())
    assert [e.id for e in response.entries] == [grant, line[0].id, line[2].id]
    assert response.absent == tuple(reversed(absent))


@pytest.mark.parametrize(
    ("start", "end", "positions"),
    [
        (1, 3, [1, 2]),
        (3, 0, [3, 4]),
        (2, 2**63, [2, 3, 4]),
        (4, 2, []),
        (7, 0, []),
        (2**64 - 1, 0, []),
    ],
)
def test_a_range_ends_before_its_end_or_with_its_lane(
    sample: Sample, start: int, end: int, positions: list[int]
) -> None:
    line = sample.chain(5)
    sample.add(*line)
    wanted = lane_of(sample, start, end)
    assert fetched(sample, ranges=(wanted,)) == [line[place].id for place in positions]


def test_ranges_of_unknown_lanes_yield_nothing(sample: Sample) -> None:
    sample.add(*sample.chain(2))
    for lane in (Lane(Writer(9).public, 1, 1), Lane(sample.owner.public, 7, 1)):
        assert fetched(sample, ranges=(LaneRange(lane, 0, 0),)) == []
    assert fetched(sample, ranges=(LaneRange(Lane(sample.owner.public, 1, -5), 0, 9),)) == []


def test_overlapping_ranges_yield_their_union(sample: Sample) -> None:
    line = sample.chain(12)
    sample.add(*line)
    chance = random.Random(1)
    for _ in range(50):
        bounds = [(chance.randrange(14), chance.randrange(14)) for _ in range(4)]
        ranges = [lane_of(sample, *pair) for pair in bounds]
        positions = {p for start, end in bounds for p in range(start, min(end or 12, 12))}
        assert fetched(sample, ranges=tuple(ranges)) == [line[p].id for p in sorted(positions)]


def test_a_range_has_both_entries_of_a_forked_position(sample: Sample) -> None:
    (first,) = sample.chain(1)
    twin = sample.owner.restored()
    left = sample.owner.write(sample.id, said("left"), parents=[first])
    right = twin.write(sample.id, said("right"), parents=[first])
    sample.add(first, left, right)
    assert set(fetched(sample, ranges=(lane_of(sample, 1, 2),))) == {left.id, right.id}


def test_the_end_of_a_long_forked_lane_is_found_in_steps(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PASSED_MAX", 8)
    twin, lane = sample.owner.restored(), sample.chain(100)
    fork = twin.write(sample.id, said("fork"), parents=[sample.genesis])
    sample.add(*lane, fork)
    responses = list(fetch(sample.held, [], [lane_of(sample, 0, 1), lane_of(sample, 99, 0)]))
    assert responses.count(None) == 13
    (response,) = filter(None, responses)
    assert set(response.entries) == {lane[0], fork, lane[99]}


def test_entries_that_are_not_covered_are_handed_to_nobody(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are absent by id, and passed over in steps in ranges (ORD-13)."""
    monkeypatch.setattr(queries, "PASSED_MAX", 8)
    reader = Writer(2)
    sample.grant(reader, Role.READER)
    line = [reader.write(sample.id, said("x"), parents=[sample.genesis]) for _ in range(20)]
    sample.add(*line)
    lane = LaneRange(line[0].header.lane, 0, 0)
    responses = list(fetch(sample.held, [line[0].id], [lane]))
    assert responses == [None, None, None, Fetched((), (line[0].id,))]
    sample.grant(reader, Role.WRITER)
    assert list(fetch(sample.held, [], [lane])) == [Fetched(tuple(line))]


def test_a_lane_named_a_hundred_times_is_walked_once(sample: Sample) -> None:
    sample.add(*sample.chain(300))
    whole, first = lane_of(sample, 0, 0), lane_of(sample, 0, 1)
    once = calls(lambda: fetched(sample, ranges=(whole,)))
    assert calls(lambda: fetched(sample, ranges=(whole, first) * 50)) < 2 * once


def test_many_ids_are_ordered_in_steps(sample: Sample) -> None:
    line = sample.chain(3 * PASSED_MAX)
    sample.add(*line)
    sample.grant(Writer(2), Role.READER)
    (grant,) = sample.held.log.membership_heads()
    responses = list(fetch(sample.held, [grant, *(entry.id for entry in reversed(line))], ()))
    assert responses[:3] == [None, None, None]  # 1,537 ids are ordered 512 at a time
    found = [entry.id for response in filter(None, responses) for entry in response.entries]
    assert found == [grant, *(entry.id for entry in line)]


def test_responses_are_cut_so_that_each_fits_a_frame(sample: Sample) -> None:
    line = [*sample.chain(5, "x" * 170_000), *sample.chain(1, "x" * 400_000)]
    sample.add(*line)
    responses = list(fetch(sample.held, [*(entry.id for entry in line), ABSENT], ()))
    assert [e.id for r in responses for e in r.entries] == [e.id for e in line]
    assert [len(r.entries) for r in responses] == [3, 2, 1]
    assert [r.absent for r in responses] == [(), (), (ABSENT,)]
    sizes = [sum(e.size_bytes for e in r.entries) for r in responses]
    assert max(sizes) <= FETCHED_BYTES


def test_the_largest_entry_is_one_response_by_itself(sample: Sample) -> None:
    (largest,) = sample.chain(1, "x" * (limits.BODY_BYTES_MAX - 100))
    sample.add(largest)
    assert largest.size_bytes > FETCHED_BYTES
    assert list(fetch(sample.held, [largest.id], [])) == [Fetched((largest,))]


def test_nothing_found_is_one_response(sample: Sample) -> None:
    assert list(fetch(sample.held, [], ())) == [Fetched(())]
    assert list(fetch(sample.held, [ABSENT], ())) == [Fetched((), (ABSENT,))]


def test_entries_of_another_conversation_are_absent(sample: Sample) -> None:
    other = Sample(Writer(7))
    elsewhere = other.say(other.genesis)
    lane = LaneRange(elsewhere.header.lane, 0, 0)
    assert list(fetch(sample.held, [elsewhere.id], [lane])) == [Fetched((), (elsewhere.id,))]
    mine = LaneRange(sample.say(sample.genesis).header.lane, 0, 0)
    (answered,) = fetch(sample.held, [], [mine, lane])
    assert {entry.conversation for entry in answered.entries} == {sample.id}


def test_headers_are_returned_alone_on_request_except_control_kinds(sample: Sample) -> None:
    line = sample.chain(3, "x" * 400_000)
    sample.add(*line)
    ids = [sample.genesis.id, *(entry.id for entry in line)]
    (response,) = fetch(sample.held, ids, (), headers_only=True)
    assert [e.body is None for e in response.entries] == [False, True, True, True]
    assert [e.id for e in response.entries] == ids
    assert sample.held.log.entries[line[0].id].body is not None


def test_the_ids_of_a_fetch_are_limited(sample: Sample) -> None:
    most = [ABSENT] * limits.FETCH_IDS_MAX
    assert list(fetch(sample.held, most, ())) == [Fetched((), (ABSENT,))]
    with pytest.raises(ArgumentInvalid):
        fetch(sample.held, [*most, ABSENT], ())


def test_the_answer_is_chosen_when_fetch_is_called(sample: Sample) -> None:
    early, late = sample.chain(2)
    sample.add(early)
    responses = fetch(sample.held, [early.id, late.id], ())
    sample.add(late)  # and it is not durable yet
    assert list(responses) == [Fetched((early,), (late.id,))]


# --- Push -------------------------------------------------------------------------------


def test_held_entries_are_durable_and_each_refusal_has_its_reason(sample: Sample) -> None:
    here, forged, late = sample.chain(3)
    sample.add(here)
    own = Fault.of(SignatureInvalid(), sample.id, forged.id)
    general = Fault.of(EntriesMissing(missing=[forged.id]), sample.id)
    result = outcomes([here.id, forged.id, late.id], [own, general], sample.held)
    assert result == {here.id: None, forged.id: own, late.id: general}


def test_an_entry_that_is_held_with_its_body_is_durable_whatever_a_copy_was_refused_for(
    sample: Sample,
) -> None:
    whole, bare = sample.chain(2)
    sample.add(whole, replace(bare, body=None))
    wrong = [Fault.of(BodyDigestMismatch(), sample.id, entry.id) for entry in (whole, bare)]
    result = outcomes([whole.id, bare.id], wrong, sample.held)
    assert result == {whole.id: None, bare.id: wrong[1]}


def test_a_pending_entry_is_not_durable(sample: Sample) -> None:
    _, late = sample.chain(2)
    sample.add(late)
    (fault,) = outcomes([late.id], [], sample.held).values()
    assert fault is not None
    assert fault.reason == EntriesMissing.reason


def test_the_first_of_several_faults_counts(sample: Sample) -> None:
    first, second = (entry.id for entry in sample.chain(2))
    own = [Fault.of(SignatureInvalid(word), sample.id, first) for word in ("this", "that")]
    general = [Fault.of(EntriesMissing(), sample.id), Fault.of(PendingFull(), sample.id)]
    result = outcomes([first, second], [*own, *general], sample.held)
    assert result == {first: own[0], second: general[0]}


@pytest.mark.parametrize("kind", [ConversationUnknown, CreateForbidden])
def test_a_stranger_gets_one_reason_for_all_its_entries(
    sample: Sample, kind: type[ConversationUnknown] | type[CreateForbidden]
) -> None:
    here, new = sample.chain(2)
    sample.add(here)
    fault = Fault.of(kind(), sample.id, here.id)
    for held in (sample.held, None):
        result = outcomes([here.id, new.id], [fault], held)
        assert result == dict.fromkeys((here.id, new.id), Fault.of(kind(), sample.id))


def test_the_outcomes_of_a_push_take_one_pass() -> None:
    def work(n: int):
        ids = [EntryId(number.to_bytes(32, "big")) for number in range(n)]
        faults = [Fault("REFUSED", entry=entry_id) for entry_id in ids]
        return lambda: outcomes(ids, faults, None)

    assert grows_linearly(work, 200)
