"""Idempotency keys: the entries that a call left in the log (spec/02-entry §7).

Pure. A program names a call with a text of its own, such as a job's number. The
message and the requests of the call carry its digest, so that after a crash any
replica of that author finds the entries, and goes on instead of asking twice.
"""

from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.ids import Digest, EntryId, PublicKey, tagged_sha256
from replica.log import CallKey, Entry, Kind, Message, Part, Request, Speaker, codec, reach
from replica.refusals import KeyReused

KEY_TAG = b"antiphon/v1/call-key"
CALL_TAG = b"antiphon/v1/call"


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """The entries of one call: its message, and its requests in (lamport, id) order."""

    message: EntryId | None = None
    requests: tuple[EntryId, ...] = ()
    attempt: int = 0
    """Number of the current try, from 0."""

    def asked(self, request: EntryId, attempt: int) -> "KeyedRun":
        """Return the run with one more request."""
        return KeyedRun(self.message, (*self.requests, request), attempt)


def key_digest(author: PublicKey, text: str) -> Digest:
    """Return the digest of an author's key; another author's key of that text differs."""
    return tagged_sha256(KEY_TAG, author + text.encode())


def call_digest(parts: tuple[Part, ...]) -> Digest:
    """Return the digest of the message that begins a call."""
    return tagged_sha256(CALL_TAG, codec.encode_body(Message(Speaker.USER, parts)))


def find_run(held: Conversation, author: PublicKey, key: Digest, call: Digest) -> KeyedRun:
    """Return the entries of a call as far as it got; empty if it never began.

    The first message of the key counts, with the requests that follow it: two
    devices that begin one call at the same time leave two messages. Raises KeyReused.
    """
    found = [
        (entry, mark)
        for entry in held.log.entries.values()
        if entry.header.author == author
        and (mark := _key_of(held, entry)) is not None
        and mark.key == key
        and held.log.membership.is_visible(entry)
    ]
    found.sort(key=lambda one: one[0].order_key)
    if any(mark.call != call for _, mark in found):
        raise KeyReused
    message = next((e.id for e, _ in found if e.header.kind == Kind.MESSAGE), None)
    requests = [
        (entry, mark)
        for entry, mark in found
        if entry.header.kind == Kind.REQUEST
        and (message is None or _follows(held, entry, held.log.entries[message]))
    ]
    attempt = max((mark.attempt for _, mark in requests), default=0)
    return KeyedRun(message, tuple(entry.id for entry, _ in requests), attempt)


def repeats_call(held: Conversation, request: EntryId) -> bool:
    """Say whether a request repeats an earlier one of its call, as from a second device.

    It does if it follows another message than the first of the call, or has the parents
    and the attempt of an earlier request.
    """
    entry, body = held.log.entries[request], held.order.request(request)
    key = body.key if body is not None else None
    if key is None:
        return False
    try:
        run = find_run(held, entry.header.author, key.key, key.call)
    except KeyReused:
        return False  # two calls share a key: neither repeats the other
    like = [one for one in run.requests if _is_like(held, held.log.entries[one], entry, key)]
    return like[:1] != [request]


def _is_like(held: Conversation, one: Entry, other: Entry, key: CallKey) -> bool:
    mark = _key_of(held, one)
    same_attempt = mark is not None and mark.attempt == key.attempt
    return same_attempt and one.header.parents == other.header.parents


def _key_of(held: Conversation, entry: Entry) -> CallKey | None:
    if entry.header.kind not in (Kind.MESSAGE, Kind.REQUEST):
        return None
    body = held.log.body(entry.id)
    return body.key if isinstance(body, (Message, Request)) else None


def _follows(held: Conversation, entry: Entry, message: Entry) -> bool:
    """Say whether `message` is an ancestor of `entry` through parents."""
    entries = held.log.entries
    lowest = message.header.lamport

    def follow(at: EntryId) -> tuple[EntryId, ...]:
        header = entries[at].header
        return header.parents if header.lamport > lowest else ()

    return message.id in reach(entry.header.parents, follow)
