"""A hub's quotas on the entries of one conversation (spec/11-limits, LIM-5 to LIM-7).

Pure, and private to intake.py. They refuse before admission and decide none: what a
hub holds already stays. Each bounds the work that one key can leave to everybody else.
"""

from math import inf

from replica import limits
from replica.conversation import Conversation
from replica.errors import with_step
from replica.ids import PublicKey, Track
from replica.log import (
    Entry,
    Kind,
    Member,
    Membership,
    Revocation,
    Role,
    codec,
    is_plain_resignation,
)
from replica.refusals import BodyMalformed, QuotaExceeded


def check_quotas(held: Conversation, entry: Entry, entries_max: int | None) -> None:
    """Raise QuotaExceeded if a new entry is one too many. Clients have no quotas: None."""
    if entries_max is None:
        return
    header, log = entry.header, held.log
    # The last fold: one more for each entry of a frame would cost too much.
    membership = log.roster.last
    roles = membership.roles.get(header.author, frozenset())
    # Changes inside the cuts of an owner that was removed have effect, so a hub must hold them.
    is_owners_change = header.track == Track.MEMBERSHIP and membership.has_owner_role(header.author)
    if len(log) >= entries_max or log.size_bytes > limits.CONVERSATION_BYTES_MAX:
        _check_reserve(held, entry, entries_max, is_owners_change=is_owners_change)
    if roles == {Role.READER}:
        _check_readers_entries(held, entry)
    if header.seq == 0 and not is_owners_change:
        _check_lanes(held, entry)
    if header.kind == Kind.SEAL:
        _check_seals(held, entry)
    if header.kind == Kind.MEMBER:
        _check_revocations(held, entry)


def _check_reserve(
    held: Conversation, entry: Entry, entries_max: int, *, is_owners_change: bool
) -> None:
    """Raise QuotaExceeded unless a full conversation has a reserve for an entry (LIM-16)."""
    log, kind, author = held.log, entry.header.kind, entry.header.author
    membership, more_bytes = log.roster.last, float(limits.ANSWERS_RESERVE_BYTES)
    roles = membership.roles.get(author, frozenset())
    if is_owners_change:
        more, more_bytes = _reserve_of(membership, author), inf
    elif kind in (Kind.SEAL, Kind.GENERATION) and Role.HOST in roles:
        more = limits.ANSWERS_RESERVE
    elif kind == Kind.CANCEL:
        more = limits.ANSWERS_RESERVE // 2
    elif _is_first_resignation(held, entry):
        more = 2 * limits.MEMBERSHIP_RESERVE  # some are left where juniors used up theirs
    else:
        more, more_bytes = 0, 0
    if len(log) >= entries_max + more:
        raise _full("the conversation is full")
    if log.size_bytes > limits.CONVERSATION_BYTES_MAX + more_bytes:
        raise _full("the conversation is full: its entries have too many bytes")


def _full(detail: str) -> QuotaExceeded:
    """Return the error of a conversation that holds no more: nothing can be deleted from a log."""
    step = "Go on in another conversation, or ask the operator of the hub for a higher quota."
    return with_step(QuotaExceeded(detail), step)


def _reserve_of(membership: Membership, owner: PublicKey) -> int:
    """Return how many membership entries an owner may write beyond a full conversation.

    The creator, and then the other owners of the genesis, have some left where those below them
    used up theirs: a junior could else keep all from removing it.
    """
    depth, index = membership.ranks.get(owner, (1, 0))
    steps = 1 if depth else 2 if index else 3
    return steps * limits.MEMBERSHIP_RESERVE


def _check_readers_entries(held: Conversation, entry: Entry) -> None:
    author = entry.header.author
    written = held.log.written[author] + held.log.admission.pending_by(author)
    if written >= limits.READER_ENTRIES_MAX and not _is_first_resignation(held, entry):
        raise QuotaExceeded(f"a reader writes {limits.READER_ENTRIES_MAX} entries at most")


def _is_first_resignation(held: Conversation, entry: Entry) -> bool:
    """Say whether a reader resigns, for the first time here: nothing keeps it from that."""
    if entry.header.kind != Kind.MEMBER:
        return False
    author = entry.header.author
    member = _member(held, entry)
    return (
        member is not None
        and is_plain_resignation(entry, member)
        and not held.log.roster.revocations(author, author)
    )


def _check_lanes(held: Conversation, entry: Entry) -> None:
    author, log = entry.header.author, held.log
    lanes = len(log.lanes_of(author)) + log.admission.pending_lanes_by(author)
    if lanes >= limits.LANES_PER_KEY_MAX and not _is_first_resignation(held, entry):
        detail = f"this key has {limits.LANES_PER_KEY_MAX} lanes here: write on in one of them"
        raise QuotaExceeded(f"{detail}, or with another key")


def _check_seals(held: Conversation, entry: Entry) -> None:
    header = entry.header
    seals = held.log.seals[header.parents[0], header.author]
    if seals >= limits.SEALS_PER_REQUEST_MAX:
        raise QuotaExceeded(f"this host sealed the request {seals} times")


def _check_revocations(held: Conversation, entry: Entry) -> None:
    member = _member(held, entry)
    change = member.change if member is not None else None
    if not isinstance(change, Revocation):
        return
    written = held.log.roster.revocations(entry.header.author, change.key)
    if written >= limits.REVOCATIONS_PER_KEY_MAX:
        raise QuotaExceeded(f"this key revoked that key {written} times")


def _member(held: Conversation, entry: Entry) -> Member | None:
    """Return the body of a MEMBER entry; None for one that admission refuses."""
    try:
        body = codec.decode_body(Kind.MEMBER, entry.body or b"", held.log.meter.turn)
    except BodyMalformed:
        return None
    return body if isinstance(body, Member) else None
