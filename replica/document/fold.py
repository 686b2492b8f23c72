"""Verdicts on document updates, and the owners of the structs they name (spec/06-document §3).

An update is checked in full before it reaches the merging engine. Its verdict
follows from the entry and its ancestors alone, so every replica reaches the
same one in any order of delivery, also for a lane that forks.

An update's own structs carry its lane's client id and start at clock 0; the
structs of an ancestor are named by that entry's client id. So no counter runs
along a lane, a void update does not affect its successors, and two entries at one
lane position never claim the same structs.

Pure, and free of pycrdt; replica/document/projection.py turns the result into a document.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replica.document.yjs import (
    CLOCKS_MAX,
    Content,
    DecodedUpdate,
    Struct,
    UpdateTooLarge,
    decode_update,
)
from replica.errors import EntryRefused, RequestRefused
from replica.ids import EntryId, Lane, tagged_sha256

CLIENT_TAG = b"antiphon/v1/document-client"
ROOTS = ("annotations", "branches", "meta")
_CLIENT_BITS = 53


class ClientForeign(EntryRefused):
    """A struct carries a client id that is not its lane's."""

    reason = "DOCUMENT_CLIENT_FOREIGN"
    next_step = "Write the edit again under the client id of the lane."


class ClockGap(EntryRefused):
    """The clocks of an update don't run from 0 without a gap."""

    reason = "DOCUMENT_CLOCK_GAP"
    next_step = "Number the structs of each update from 0."


class ContentRefused(EntryRefused):
    """A struct is not one JSON value, or a deleted one, under a key of a root map."""

    reason = "DOCUMENT_CONTENT_REFUSED"
    next_step = "Set and delete keys of the root maps; nest data as plain JSON values."


class RootUnknown(EntryRefused):
    """A struct belongs to a root other than meta, branches and annotations."""

    reason = "DOCUMENT_ROOT_UNKNOWN"
    next_step = "Write to meta, branches or annotations."


class OriginUnknown(EntryRefused):
    """An origin or deletion names a struct that no valid ancestor of the entry added."""

    reason = "DOCUMENT_ORIGIN_UNKNOWN"
    next_step = "Write the edit again, on top of valid entries only."


class NotCausal(RequestRefused):
    """The entry came before its ancestors; `missing` lists their ids."""

    reason = "DOCUMENT_NOT_CAUSAL"
    next_step = "Pass the missing entries first, in (lamport, id) order."
    retryable = True


@dataclass(frozen=True, slots=True)
class Update:
    """One admitted entry of the document track, as the fold needs it.

    `update` is the body's Yjs v1 update. It is EMPTY_UPDATE for entries without one
    (the genesis, a JOIN) and for entries void by membership, so that their ancestors
    stay reachable through them.
    """

    id: EntryId
    lane: Lane
    seq: int
    prev: EntryId | None
    parents: tuple[EntryId, ...]
    lamport: int
    update: bytes

    @property
    def order(self) -> tuple[int, EntryId]:
        """The sort key of the track: (lamport, id)."""
        return self.lamport, self.id

    @property
    def follows(self) -> tuple[EntryId, ...]:
        """The ids this entry directly follows: its parents and `prev`."""
        return self.parents if self.prev is None else (*self.parents, self.prev)


@dataclass(frozen=True, slots=True)
class CheckedUpdate:
    """A valid update, and the entry that each client id in it names."""

    decoded: DecodedUpdate
    owners: Mapping[int, EntryId]


@dataclass(frozen=True, slots=True)
class _Known:
    """The fold's record of an entry, of a size independent of its ancestors.

    A path is a chain of entries, each of which follows the one before, in any lane;
    `index` counts along it. Of two entries on one path the first is an ancestor of the
    second. Other ancestors are found by search.
    """

    seq: int
    lamport: int
    follows: tuple[EntryId, ...]
    path: int
    index: int
    clocks: int


def client_id(lane: Lane) -> int:
    """Return the client id of a lane's own structs, 53 bits of the tagged hash of the lane."""
    data = lane.author + lane.epoch.to_bytes(8, "little") + lane.track.to_bytes(1, "little")
    return _client(tagged_sha256(CLIENT_TAG, data))


def entry_client(entry: EntryId) -> int:
    """Return the client id by which descendants name the structs of `entry`, 53 bits of its id."""
    return _client(entry)


class DocumentFold:
    """Verdicts over the document track, entry by entry in causal order."""

    def __init__(self) -> None:
        self.void: dict[EntryId, str] = {}
        self._known: dict[EntryId, _Known] = {}
        self._heads: set[EntryId] = set()
        self._path_ends: list[EntryId] = []
        self._by_client: dict[int, list[EntryId]] = {}

    def __contains__(self, entry: EntryId) -> bool:
        return entry in self._known

    @property
    def heads(self) -> tuple[EntryId, ...]:
        """The entries that none follows, sorted: the parents of the next entry."""
        return tuple(sorted(self._heads))

    def receive(self, update: Update) -> CheckedUpdate | None:
        """Fold one entry; return its checked update, or None if it is void.

        Raises NotCausal if an ancestor is missing; the fold is then unchanged.
        """
        self._check_causal(update)
        try:
            checked = self.check(update.update, update.lane, own=update.id, follows=update.follows)
        except EntryRefused as refusal:
            self.void[update.id] = refusal.reason
            checked = None
        self._keep(update, 0 if checked is None else _clocks(checked.decoded))
        return checked

    def check(
        self,
        data: bytes,
        lane: Lane,
        *,
        own: EntryId,
        follows: tuple[EntryId, ...] | None = None,
    ) -> CheckedUpdate:
        """Check the update `data` of entry `own`, which directly follows `follows`.

        Without `follows` it follows every entry of the fold. Raises the EntryRefused
        of the first broken rule, in the order of spec/06 §3.
        """
        client = client_id(lane)
        decoded = decode_update(data)
        _check_clocks(decoded.structs, client)
        for item in decoded.structs:
            _check_content(item)
        own_clocks = _clocks(decoded)
        names = [
            (item.origin.client, item.origin.clock + 1, item.id.clock)
            for item in decoded.structs
            if item.origin is not None
        ]
        names += [(d.id.client, d.id.clock + d.length, own_clocks) for d in decoded.deletions]
        clients = dict.fromkeys(name for name, _, _ in names if name != client)
        owners = {client: own} | self._owners(clients, follows)
        for name, end, own_end in names:
            # DOC-13: of its own structs an update names only earlier ones.
            clocks = own_end if name == client else self._known[owners[name]].clocks
            if end > clocks:
                raise OriginUnknown(
                    f"Client {name} has {clocks} clocks; clock {end - 1} is none of them."
                )
        return CheckedUpdate(decoded, owners)

    def names_one(self, client: int) -> bool:
        """Say whether a client id names one valid entry of the fold that has structs."""
        return len(self._by_client.get(client, ())) == 1

    def _owners(
        self, clients: Iterable[int], follows: tuple[EntryId, ...] | None
    ) -> dict[int, EntryId]:
        """Find the one ancestor that each client id names."""
        named = {client: self._by_client.get(client, []) for client in clients}
        candidates = {entry for entries in named.values() for entry in entries}
        ancestors = candidates if follows is None else self._ancestors(candidates, follows)
        owners = {}
        for client, entries in named.items():
            meant = [entry for entry in entries if entry in ancestors]
            # DOC-13: ids of 53 bits can be made to collide; an ambiguous name is refused.
            if len(meant) != 1:
                raise OriginUnknown(f"Client {client} names {len(meant)} ancestors, not one.")
            owners[client] = meant[0]
        return owners

    def _ancestors(self, wanted: set[EntryId], follows: tuple[EntryId, ...]) -> set[EntryId]:
        """Return those of `wanted` that are among `follows` or their ancestors."""
        ends: dict[int, int] = {}
        for entry in follows:
            known = self._known[entry]
            ends[known.path] = max(known.index, ends.get(known.path, 0))
        on_path = {e for e in wanted if self._known[e].index <= ends.get(self._known[e].path, -1)}
        return on_path | self._searched(wanted - on_path, follows)

    def _searched(self, wanted: set[EntryId], follows: tuple[EntryId, ...]) -> set[EntryId]:
        # Ancestors kept per entry would need quadratic memory. Most of the entries named
        # are near, or on the same path.
        lowest = min((self._known[entry].lamport for entry in wanted), default=0)
        left, seen = set(wanted), set(follows)
        todo = list(follows)
        while todo and left:
            at = todo.pop()
            left.discard(at)
            if self._known[at].lamport > lowest:
                new = [entry for entry in self._known[at].follows if entry not in seen]
                seen.update(new)
                todo += new
        return wanted - left

    def _check_causal(self, update: Update) -> None:
        missing = [entry for entry in update.follows if entry not in self._known]
        if missing:
            raise NotCausal(f"{len(missing)} ancestors are missing.", missing=missing)
        if any(self._known[entry].lamport >= update.lamport for entry in update.follows):
            raise NotCausal("The lamport is not above that of every ancestor.")
        if update.prev is not None and self._known[update.prev].seq + 1 != update.seq:
            raise NotCausal("The seq does not follow that of prev.")

    def _keep(self, update: Update, clocks: int) -> None:
        path, index = self._path(update)
        self._known[update.id] = _Known(
            update.seq, update.lamport, update.follows, path, index, clocks
        )
        self._heads.difference_update(update.follows)
        self._heads.add(update.id)
        if clocks:
            self._by_client.setdefault(entry_client(update.id), []).append(update.id)

    def _path(self, update: Update) -> tuple[int, int]:
        """Return the longest path that ends right before the entry, and the entry's index on it."""
        before = [self._known[entry] for entry in update.follows]
        ended = [
            known
            for entry, known in zip(update.follows, before, strict=True)
            if self._path_ends[known.path] == entry
        ]
        if not ended:
            self._path_ends.append(update.id)
            return len(self._path_ends) - 1, 0
        known = max(ended, key=lambda k: k.index)
        self._path_ends[known.path] = update.id
        return known.path, known.index + 1


def _client(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little") >> (64 - _CLIENT_BITS)


def _clocks(decoded: DecodedUpdate) -> int:
    return sum(item.length for item in decoded.structs)


def _check_clocks(structs: Iterable[Struct], client: int) -> None:
    clock = 0
    for item in structs:
        if item.id.client != client:
            # DOC-9: a forged client id would make replicas diverge for good.
            raise ClientForeign(f"Client {item.id.client} is not the lane's {client}.")
        if item.id.clock != clock:
            raise ClockGap(f"Clock {item.id.clock} comes where clock {clock} is due.")
        if item.content is Content.SKIP:
            raise ClockGap(f"Clock {item.id.clock} is skipped.")
        clock += item.length
    if clock > CLOCKS_MAX:
        raise UpdateTooLarge(f"The update has {clock} clocks; the limit is {CLOCKS_MAX}.")


def _check_content(item: Struct) -> None:
    # DOC-11, DOC-12: flat maps only. Every further shared type could make an engine
    # recurse, panic or depend on the order of delivery.
    if item.content not in (Content.ANY, Content.DELETED):
        raise ContentRefused(f"Clock {item.id.clock} holds {item.content.name}.")
    if item.content is Content.ANY and item.length != 1:
        raise ContentRefused(f"Clock {item.id.clock} sets {item.length} values at once.")
    if item.right_origin is not None or item.parent is not None:
        raise ContentRefused(f"Clock {item.id.clock} is not an entry of a root map.")
    if item.origin is None:
        if item.key is None:
            raise ContentRefused(f"Clock {item.id.clock} has no key.")
        if item.root not in ROOTS:
            raise RootUnknown(f"{item.root!r} is not a root of the document.")
