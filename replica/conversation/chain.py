"""A chain of new entries, each following the one before, as the writer of a lane is given it.

Pure. Of the processes on one store a single one writes (DECISIONS D341). It may be given the
same chain twice, by a process that does not know whether the first time succeeded: the salts
make every body unique, so that the entries are found in the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.errors import RequestRefused
from replica.ids import SALT_BYTES, EntryId, Lane, PublicKey
from replica.log import (
    Body,
    Conflict,
    Entry,
    Kind,
    Message,
    ToolStarted,
    body_digest,
    codec,
    decode_body,
    kind_of,
    reach,
    salted,
)
from replica.refusals import BodyMalformed


class CallStarted(RequestRefused):
    """The tool call was started already, by another process of this replica."""

    reason = "CALL_STARTED"
    next_step = "Wait for its result in the log, or run the call again under the same key."


class LaneMoved(RequestRefused):
    """Another process of this replica wrote to the lane meanwhile."""

    reason = "LANE_MOVED"
    next_step = "Compute the change again from the log as it is now."
    retryable = True


@dataclass(frozen=True, slots=True)
class Slot:
    """The next position of a lane: the entry that is written next has this seq."""

    lane: Lane
    seq: int


@dataclass(frozen=True, slots=True)
class NewEntry:
    """The body of one entry of a chain, with the salt that makes it unique."""

    body: Body
    salt: bytes

    @property
    def content(self) -> bytes:
        """The bytes of the body as they are hashed and stored."""
        return salted(self.salt, codec.encode_body(self.body))


@dataclass(frozen=True, slots=True)
class Chain:
    """Bodies to be written behind `parents`, one behind the other."""

    entries: tuple[NewEntry, ...]
    parents: tuple[EntryId, ...]
    basis: EntryId | None = None
    conflict: Conflict = Conflict.QUEUE
    """Applies to a request among them and to no other kind."""
    slot: Slot | None = None
    """Where the first entry must go, None for anywhere; see `check_slot`."""


def check_slot(held: Conversation, chain: Chain, epoch: int) -> None:
    """Raise LaneMoved unless the chain's slot is the next one of a lane in this epoch.

    An update of the document is computed for one slot, and is void at any other.
    """
    slot = chain.slot
    if slot is None:
        return
    if slot.lane.epoch != epoch or held.next_position(slot.lane)[0] != slot.seq:
        raise LaneMoved


def check_calls(held: Conversation, chain: Chain) -> None:
    """Raise CallStarted if the chain starts a call that was started before it.

    Whoever starts a call runs its tool: the start is a compare-and-set (DECISIONS D343).
    """
    starting = {
        part.call_id
        for new in chain.entries
        if isinstance(new.body, Message)
        for part in new.body.parts
        if isinstance(part, ToolStarted)
    }
    if not starting:
        return
    log = held.log
    behind = reach(chain.parents, lambda i: _messages(held, log.children(i)))
    for entry_id in behind:
        body = log.body(entry_id)
        for part in body.parts if isinstance(body, Message) else ():
            if isinstance(part, ToolStarted) and part.call_id in starting:
                raise CallStarted(f"'{part.call_id}' was started by another process")


def _messages(held: Conversation, ids: Iterable[EntryId]) -> tuple[EntryId, ...]:
    return tuple(i for i in ids if held.log.entries[i].header.kind == Kind.MESSAGE)


def find_written(held: Conversation, author: PublicKey, new: NewEntry) -> Entry | None:
    """Return the entry of an author that has this body, None if it was not written."""
    digest = body_digest(new.content)
    for entry in held.log.entries.values():
        if entry.header.author == author and entry.header.body_digest == digest:
            return entry
    return None


def encode_new(new: NewEntry) -> tuple[int, bytes]:
    """Return the kind and the bytes of a new entry's body, for another process."""
    return int(kind_of(new.body)), new.content


def decode_new(kind: int, content: bytes) -> NewEntry:
    """Read what `encode_new` wrote. Raises BodyMalformed."""
    body = decode_body(kind, content)
    if body is None:
        raise BodyMalformed(f"no body is known for kind {kind}")
    return NewEntry(body, content[:SALT_BYTES])
