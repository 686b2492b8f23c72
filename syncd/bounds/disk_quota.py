"""The disk that creators occupy at a hub: entries and blobs, per creator and in all (LIM-15).

Pure. A holder is the log of a conversation, or its blobs in one store. While the hub's disk is
nearly used up, those creators are refused first that occupy more than their share.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Entries, Message
from replica.log import Entry, Kind, Role
from replica.refusals import QuotaExceeded
from syncd.bounds.accountant import Accountant
from syncd.bounds.budget import is_reserved

ROW_BYTES = 256
"""Bytes of an entry in the store beside its own: ids, checksum, index."""

FILE_BYTES = 4_096
"""Bytes of a blob's file beside its own: the rest of its last block, inode and name."""
SMALL_ENTRY_BYTES = 1_024
"""Size up to which a MEMBER or CANCEL of anyone may use the reserve."""

MESSAGE_BYTES_MAX = limits.FRAME_BYTES_MAX + ROW_BYTES * limits.ENTRIES_PER_FRAME_MAX
"""Disk that one message takes at most."""


def disk_bytes(entries: int, size_bytes: int) -> int:
    """Return the disk that so many entries of so many bytes together take, about."""
    return size_bytes + ROW_BYTES * entries


def stored_bytes(entries: Iterable[Entry]) -> int:
    """Return the disk that entries take, about."""
    sizes = [entry.size_bytes for entry in entries]
    return disk_bytes(len(sizes), sum(sizes))


class Reserve(NamedTuple):
    """The disk that a message may take beyond the bounds."""

    creator_bytes: int = 0
    hub_share: float = 0.0
    """Of what is reserved of the disk of all."""


NO_RESERVE = Reserve()


class DiskQuota:
    """The bytes on disk of each creator's conversations, with their blobs."""

    def __init__(
        self,
        creator_max: float = limits.DISK_CREATOR_BYTES_MAX,
        hub_max: float = inf,
    ) -> None:
        """Allow so many bytes of one creator's conversations, and of all."""
        self._creator_max = creator_max
        self.resize(hub_max)
        self._accounts = Accountant(holder_max=inf, key_max=inf, hub_max=inf)
        self._stores: set[str] = set()

    def resize(self, hub_max: float) -> None:
        """Allow so many bytes of all conversations from now on."""
        self._hub_max = hub_max
        self._shared = hub_max * (1 - 1 / limits.RESERVE_SHARE)
        """Bytes of all beyond which each creator has its share."""
        self._hub_reserve = hub_max / limits.RESERVE_SHARE**2
        """Bytes beyond those of all that entries with a reserve may take."""
        self._unshared = min(self._creator_max, self._shared)
        """Bytes of all up to which nobody is refused: no creator has more than all."""

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self._accounts.total

    @property
    def left(self) -> float:
        """Bytes that are left for all."""
        return max(0.0, self._hub_max - self.total)

    @property
    def is_scarce(self) -> bool:
        """Say whether creators are refused that occupy more than their share."""
        return self.total + MESSAGE_BYTES_MAX > self._shared

    def set_log(self, conversation: ConversationId, creator: PublicKey | None, size: int) -> None:
        """Set the bytes of a stored log."""
        if creator is not None:
            self._accounts.hold(("log", conversation), creator, size)

    def set_blobs(
        self, conversation: ConversationId, store: str, size_bytes: int, files: int
    ) -> None:
        """Set the bytes and files of the blobs in one store, those reserved included.

        Those of a conversation that is not stored here, or is deleted, count for nobody.
        """
        creator = self.creator(conversation)
        if creator is not None:
            self._stores.add(store)
            size = size_bytes + FILE_BYTES * files
            self._accounts.hold((store, conversation), creator, size)

    def check_blobs(
        self, conversation: ConversationId, more_bytes: int, more_files: int = 0
    ) -> None:
        """Raise QuotaExceeded unless the blobs of a stored conversation may grow so much."""
        creator = self.creator(conversation)
        if creator is not None:
            self.check(creator, more_bytes + FILE_BYTES * more_files)

    def add(self, held: Conversation, entries: Iterable[Entry]) -> None:
        """Count entries that are about to be stored."""
        before = self._accounts.size_of(("log", held.id))
        self.set_log(held.id, held.creator, before + stored_bytes(entries))

    def take_back(self, conversation: ConversationId, entries: Iterable[Entry]) -> None:
        """Count entries no more that the disk refused."""
        left = self._accounts.size_of(("log", conversation)) - stored_bytes(entries)
        self.set_log(conversation, self.creator(conversation), left)

    def release(self, conversation: ConversationId) -> None:
        """Forget a deleted conversation."""
        for part in ("log", *self._stores):
            self._accounts.release((part, conversation))

    def creator(self, conversation: ConversationId) -> PublicKey | None:
        """Return the creator of a stored conversation."""
        return self._accounts.key_of(("log", conversation))

    def check(self, creator: PublicKey, more: int, reserve: Reserve = NO_RESERVE) -> None:
        """Raise QuotaExceeded unless a creator's conversations may grow by so many bytes.

        With a `reserve` they may exceed the bounds by it.
        """
        size, total = self._accounts.total_of(creator) + more, self.total + more
        if size > self._creator_max + reserve.creator_bytes:
            raise QuotaExceeded("the conversations of this creator occupy too much disk here")
        if total > self._hub_max + self._hub_reserve * reserve.hub_share:
            raise QuotaExceeded("the disk for conversations is used up here")
        share = self._shared / max(1, self._accounts.count)
        if total > self._shared and size > share + reserve.creator_bytes:
            raise QuotaExceeded("little disk is left here, and this creator has its share of it")

    def refusal(
        self, peer: PublicKey | None, message: Message, held: Conversation | None
    ) -> QuotaExceeded | None:
        """Return the refusal of a message that brings more than there is disk for.

        MEMBER and CANCEL alone have a reserve, and so have seals and answers of hosts. To a
        key that is no member, nothing shows whether the conversation is here: what it brings
        counts as its own.
        """
        if self.total + MESSAGE_BYTES_MAX <= self._unshared or peer is None:
            return None
        if not isinstance(message, Entries):
            return None
        known = held.log.entries if held is not None else {}
        new = [entry for entry in message.entries if entry.id not in known]
        is_member = held is not None and held.is_member(peer)
        creator = held.creator if held is not None and is_member else _brought_by(message, peer)
        if creator is None or not new:
            return None
        reserve = _reserve_of(message, held) if held is not None and is_member else NO_RESERVE
        try:
            self.check(creator, stored_bytes(new), reserve)
        except QuotaExceeded as error:
            return error
        return None


def _reserve_of(message: Entries, held: Conversation) -> Reserve:
    """Return what a message may take beyond the bounds.

    Seals and answers of hosts belong to a request that had room, and changes of the
    membership have some more than those. A change or a CANCEL that is not small is an owner's,
    and CANCELs take little, so that writers leave some to hosts and owners.
    """
    kinds = {entry.header.kind for entry in message.entries}
    if kinds <= {Kind.SEAL, Kind.GENERATION}:
        roles = held.log.membership.roles
        are_hosts = all(Role.HOST in roles.get(e.header.author, ()) for e in message.entries)
        return Reserve(limits.ANSWERS_RESERVE_BYTES, 0.5) if are_hosts else NO_RESERVE
    if not is_reserved(message):
        return NO_RESERVE
    owners = held.log.membership.owner_keys()
    for entry in message.entries:
        is_change = entry.header.kind == Kind.MEMBER and entry.header.author in owners
        if not is_change and entry.size_bytes > SMALL_ENTRY_BYTES:
            return NO_RESERVE
    if Kind.CANCEL in kinds:
        return Reserve(limits.DISK_RESERVE_BYTES // 2, 1.0)
    return Reserve(limits.ANSWERS_RESERVE_BYTES + limits.DISK_RESERVE_BYTES, 1.0)


def _brought_by(message: Entries, peer: PublicKey) -> PublicKey | None:
    genesis = EntryId(message.conversation)
    mine = (e.id == genesis and e.header.author == peer for e in message.entries)
    return peer if any(mine) else None
