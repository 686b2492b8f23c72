"""Rights of callers, and the answers that need no link (spec/04-link §7 to §9).

Pure. A servicer parses, calls these and encodes their results. They answer from
memory, so the driver flushes the conversation before it sends an answer: entries
admitted meanwhile may not be durable yet (DECISIONS D36). "Not found" covers
absent, lost and forbidden conversations (DECISIONS D21).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from heapq import merge
from itertools import chain

from replica import limits
from replica.conversation import Conversation
from replica.ids import EntryId, Lane, PublicKey
from replica.link import Fault
from replica.log import MEMBERSHIP_TRACKS, Entry, Log, Role, rules_of
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    NotAllowed,
)

# --- rights ---------------------------------------------------------------------


class Right(Enum):
    """A use of a conversation that a caller asks for."""

    READ = "read"
    WRITE_BLOBS = "write blobs"
    REMOVE_BLOBS = "remove blobs that expire"
    DELETE = "delete"


def permitted(held: Conversation | None, peer: PublicKey, right: Right) -> Conversation:
    """Return the conversation if `peer` has the right. Raises ConversationUnknown, NotAllowed."""
    if held is None or not held.is_member(peer):
        # LINK-9: the same error for "no such conversation" and "not yours".
        raise ConversationUnknown
    membership = held.log.membership
    roles, is_owner = membership.roles[peer], membership.is_owner(peer)
    if right is Right.WRITE_BLOBS and roles <= {Role.READER}:
        raise NotAllowed("readers write no blobs")
    if right is Right.REMOVE_BLOBS and not is_owner and Role.HOST not in roles:
        raise NotAllowed("only owners and hosts remove blobs")
    if right is Right.DELETE and not is_owner:
        raise NotAllowed("only an owner deletes a conversation")
    return held


# --- Resolve --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unknown:
    """The hub does not hold the entry."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The entry is pending until these arrive, ascending; none if it waits for a grant.

    At most as many as a Fetch may ask for.
    """

    missing: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The entry is in the log; of a request also its seal and its generation."""

    seal: EntryId | None
    generation: EntryId | None


@dataclass(frozen=True, slots=True)
class Uncovered:
    """The entry is in the log and not covered: its author may not write it, or a cut left it."""


Fate = Unknown | Pending | Held | Uncovered


def fate_of(held: Conversation, entry_id: EntryId) -> Fate:
    """Return the fate of an entry."""
    if entry_id in held.log.pending:
        missing = held.log.admission.missing_for(entry_id, limits.FETCH_IDS_MAX)
        return Pending(tuple(missing))
    if entry_id not in held.log.entries:
        return Unknown()
    if entry_id not in held.log.covered():
        return Uncovered()
    return Held(held.order.seal_of.get(entry_id), held.order.generation_of(entry_id))


# --- Fetch ----------------------------------------------------------------------

FETCHED_BYTES = limits.FRAME_BYTES_MAX // 2
"""Size at which a response of Fetch is cut, so that one more entry still fits a frame."""

FETCHED_ENTRIES = 256
"""Entries of a response, so that it is found and encoded in some milliseconds."""

PASSED_MAX = 512
"""Entries of a forked lane that are passed over between two responses or pauses: some ms."""


@dataclass(frozen=True, slots=True)
class LaneRange:
    """Positions of one lane, from `seq_start` to before `seq_end`; 0 is the lane's end."""

    lane: Lane
    seq_start: int
    seq_end: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response of a Fetch, in send order."""

    entries: tuple[Entry, ...]
    absent: tuple[EntryId, ...] = ()
    """Requested ids that are not held or not covered, ascending; in the last response."""


END = object()
"""What follows the last response, for callers that read one at a time: None is a pause."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """A place in a lane up to which entries were passed over."""

    order_key: tuple[int, EntryId]


_FIRST = _Passed((-1, EntryId(b"")))
"""A place before all entries."""


def fetch(
    held: Conversation,
    ids: Sequence[EntryId],
    ranges: Iterable[LaneRange],
    *,
    headers_only: bool = False,
) -> Iterator[Fetched | None]:
    """Select covered entries by id and by lane range; yield them cut into responses.

    None is a pause.
    The entries are chosen by this call, and found as the responses are read.
    Raises ArgumentInvalid.
    """
    if len(ids) > limits.FETCH_IDS_MAX:
        raise ArgumentInvalid(f"ids: at most {limits.FETCH_IDS_MAX}")
    wanted, log = set(ids), held.log
    covered = log.covered()
    present = {entry_id for entry_id in wanted if entry_id in covered}
    named = tuple(present)
    walks: tuple[list[Iterator[Entry | _Passed]], list[Iterator[Entry | _Passed]]] = [], []
    for is_late in (False, True):
        walks[is_late].append(_named(log, named, is_late))
    for lane, runs in _runs(ranges).items():
        if log.lane_length(lane):
            walks[_is_late(lane.track)].append(_in_runs(log, runs, present))
    early, late = (merge(*part, key=lambda e: e.order_key) for part in walks)
    return _responses(chain(early, late), tuple(sorted(wanted - present)), headers_only)


def _is_late(track: int) -> bool:
    """Say whether entries of a track come after those of the membership in send order."""
    return track not in MEMBERSHIP_TRACKS


def _runs(ranges: Iterable[LaneRange]) -> dict[Lane, list[LaneRange]]:
    """Return per lane the ranges wanted, without overlaps, ascending."""
    named: dict[Lane, list[LaneRange]] = {}
    for wanted in ranges:
        named.setdefault(wanted.lane, []).append(wanted)
    found: dict[Lane, list[LaneRange]] = {}
    for lane, wanted_runs in named.items():
        runs, reached = found.setdefault(lane, []), 0
        for run in sorted(wanted_runs, key=lambda run: run.seq_start):
            start, end = max(run.seq_start, reached), run.seq_end or limits.CLOCK_MAX + 1
            if start < end:
                runs.append(LaneRange(lane, start, end))
                reached = end
    return {lane: runs for lane, runs in found.items() if runs}


def _named(log: Log, ids: Sequence[EntryId], is_late: bool) -> Iterator[Entry | _Passed]:
    """Yield the entries that are late, or those that are not, in order, which is found in steps."""
    runs: list[list[Entry]] = []
    for at in range(0, len(ids), PASSED_MAX):
        if at:
            yield _FIRST
        entries = map(log.entries.__getitem__, ids[at : at + PASSED_MAX])
        chosen = (entry for entry in entries if _is_late(entry.header.track) == is_late)
        runs.append(sorted(chosen, key=lambda entry: entry.order_key))
    yield from merge(*runs, key=lambda entry: entry.order_key)


def _in_runs(log: Log, runs: list[LaneRange], but: Set[EntryId]) -> Iterator[Entry | _Passed]:
    """Yield the covered entries of a lane's ranges in (lamport, id) order, read as asked for."""
    lane, covered = runs[0].lane, log.covered()
    fork = log.lane_fork(lane)
    if fork is None:
        length = log.lane_length(lane)
        seqs = chain(*(range(run.seq_start, min(run.seq_end, length)) for run in runs))
        found = (log.entries[entry_id] for seq in seqs for entry_id in log.at(lane, seq))
        return _chosen(found, lambda entry: entry.id not in but and entry.id in covered)
    starts = [run.seq_start for run in runs]

    def is_wanted(entry: Entry) -> bool:
        index = bisect_right(starts, entry.header.seq) - 1
        is_inside = index >= 0 and entry.header.seq < runs[index].seq_end
        return is_inside and entry.id not in but and entry.id in covered

    walk = map(log.entries.__getitem__, log.lane_walk(lane, min(runs[0].seq_start, fork)))
    return _chosen(walk, is_wanted)


def _chosen(walk: Iterator[Entry], is_wanted: Callable[[Entry], bool]) -> Iterator[Entry | _Passed]:
    """Yield the wanted entries of a walk.

    The first one that is passed over is told at once: many lanes are begun in one step.
    """
    passed = 0
    for entry in walk:
        if is_wanted(entry):
            yield entry
            continue
        if passed % PASSED_MAX == 0:
            yield _Passed(entry.order_key)
        passed += 1


def _responses(
    entries: Iterable[Entry | _Passed], absent: tuple[EntryId, ...], headers_only: bool
) -> Iterator[Fetched | None]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if isinstance(entry, _Passed):
            yield None
            continue
        bodyless = headers_only and not rules_of(entry.header.kind).is_control
        sent = replace(entry, body=None) if bodyless else entry
        is_full = size + sent.size_bytes > FETCHED_BYTES or len(batch) >= FETCHED_ENTRIES
        if batch and is_full:
            yield Fetched(tuple(batch))
            batch, size = [], 0
        batch.append(sent)
        size += sent.size_bytes
    yield Fetched(tuple(batch), absent)


# --- Push -----------------------------------------------------------------------

_MESSAGE_WIDE = (ConversationUnknown.reason, CreateForbidden.reason)
"""Reasons that refuse a message as a whole, although the fault may name an entry."""


def outcomes(
    ids: Iterable[EntryId], faults: Sequence[Fault], held: Conversation | None
) -> dict[EntryId, Fault | None]:
    """Return per pushed entry the fault that refused it, None if it will be durable (LINK-24).

    One that is covered and held with its body is durable, whatever another copy was refused
    for. A wrong body of an entry that is held without one is refused as well.
    """
    as_a_whole = next((f for f in faults if f.reason in _MESSAGE_WIDE), None)
    if as_a_whole is not None:
        # A stranger must not learn that an entry is here nevertheless.
        return dict.fromkeys(ids, replace(as_a_whole, entry=None))
    acked = held.log.covered() if held is not None else ()
    without_body = held.log.bodyless if held is not None else ()
    # The first fault of each entry counts; the key None has the first that names no entry.
    fault_of = {fault.entry: fault for fault in reversed(faults)}
    found = dict[EntryId, Fault | None]()
    for entry_id in ids:
        is_acked = entry_id in acked
        is_whole = is_acked and entry_id not in without_body
        found[entry_id] = None if is_whole else fault_of.get(entry_id)
        if entry_id not in fault_of and not is_acked:
            # An entry that is pending for another link causes no fault here.
            found[entry_id] = fault_of.get(None) or Fault.of(EntriesMissing())
    return found
