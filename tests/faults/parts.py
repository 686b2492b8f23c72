"""The parts of a process's start on a data folder, and what is required of each.

Each reads the folder as the process does. It returns whether something had to be healed, and
raises the typed error that a person would read, or Violation.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_host.io.files.journal import Journals
from model_host.io.files.key_ring import KeyRing
from replica.conversation import Loaded
from replica.conversation.conversation import Conversation
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId
from replica.io import keys, petnames
from replica.io.blobs.blobs import Blobs
from replica.io.blobs.expiring_blobs import ExpiringBlobs
from replica.io.calls.hub_calls import pinned_key
from replica.io.conversations.joining import saved_hub
from replica.io.driver.saved_acks import SavedAcks
from replica.io.files.certificate import CertificateFile
from replica.io.files.keys import load_or_create_secret
from replica.io.store.folder_use import FILE, take_folder
from replica.io.store.store import Store
from replica.log.entry import Entry, public_key
from replica.refusals import BlobMissing, ValueDamaged
from syncd.hub import Hub
from syncd.io.blob_stores import BlobStores
from syncd.io.driver import HubDriver
from syncd.policy import Policy
from tests.faults import folders
from tests.faults.damage import contents
from tests.faults.folders import Truth
from tests.model_host.kv.plain_pages import filled, restore

Part = Callable[[], Awaitable[bool]]


class Violation(Exception):
    """Damage that a person would be stuck with, or would not be told of."""


@dataclass(slots=True)
class Start:
    """A start on a folder, part by part."""

    folder: Path
    truth: Truth
    folded: dict[ConversationId, Conversation] = field(default_factory=dict)
    """Logs whose entries are all sound, each folded once."""
    hides_much: bool = False
    """Whether the damage may hide more than the rows of one page."""
    has_said_loss: bool = False
    """Whether a repair has said that entries or deletions are lost."""

    @property
    def log(self) -> Path:
        """The path of the database."""
        return self.folder / "log" / "log.db"

    def parts(self) -> dict[str, Part]:
        """Return the parts of a start of this kind, in their order."""
        first: dict[str, Part] = {"use": self.use, "key": self.key}
        if self.truth.kind == "hub":
            rest = (self.secrets, self.certificate, self.hub_log, self.blobs)
        elif self.truth.kind == "host":
            rest = (self.secrets, self.replica_log, self.journal, self.derived)
        else:
            rest = (self.replica_log, self.hub_file)
        return first | {part.__name__: part for part in rest}

    async def use(self) -> bool:
        """Note the use of the folder."""
        before = (self.folder / FILE).read_bytes()
        await take_folder(self.folder, self.truth.use)
        after = (self.folder / FILE).read_bytes()
        if after.strip() != self.truth.use.encode():
            raise Violation(f"the folder states another use: {after!r}")
        return before != after

    async def key(self) -> bool:
        """Read the identity."""
        found = public_key(keys.load_or_create(self.folder / "identity.key"))
        if found != self.truth.public:
            raise Violation("another identity, without a word")
        return False

    async def secrets(self) -> bool:
        """Read the secrets, of which any will do."""
        load_or_create_secret(self.folder / "ticket.secret")
        if self.truth.kind == "host":
            KeyRing.load(self.folder)
        return False

    async def certificate(self) -> bool:
        """Read the certificate: the one that was made, or one that is made now."""
        before = (self.folder / folders.CERTIFICATE).read_bytes()
        found = CertificateFile(self.folder / folders.CERTIFICATE).current
        if (self.folder / folders.CERTIFICATE).read_bytes() != before:
            return True
        if found != self.truth.certificate:
            raise Violation("a certificate is served that no client accepts")
        return False

    async def hub_file(self) -> bool:
        """Read which hub is the default."""
        address = saved_hub(self.folder)
        if address == folders.ADDRESS:
            return False
        async with await Store.open(self.log) as store:
            if address is None or await pinned_key(store, address) is not None:
                raise Violation("another hub is asked, without a word")
        return False  # the error that it can't be reached names the address

    # --- the log ------------------------------------------------------------------------

    async def replica_log(self) -> bool:
        """Read everything; let a peer send what is missing; compare."""
        async with await Store.open(self.log) as store:
            is_healed = await self._receive_missing(store)
            is_healed |= await _use_values(store, self.truth)
        await self._compare()
        return is_healed

    async def hub_log(self) -> bool:
        """Serve the log; let members send what is missing; compare, and serve it again."""
        before = contents(self.folder / "log")
        # One bit takes one row, or a page with rows of several conversations. Each that is not
        # served names the entries that a member has to send; one may be unreadable.
        is_healed = await self._serve(1)
        async with await Store.open(self.log) as store:
            is_healed |= await self._receive_missing(store)
        await self._compare()
        # Else the next start would be the first one again.
        if is_healed or contents(self.folder / "log") != before:
            await self._serve(0)
        return is_healed

    async def _receive_missing(self, store: Store) -> bool:
        held = {stored.conversation for stored in await store.conversations()}
        is_healed = held != self.truth.entries.keys()  # a clone brings back what is not there
        for other in held - self.truth.entries.keys():
            await store.load(other)  # as whoever lists it does, which files its rows anew
        for conversation, entries in self.truth.entries.items():
            loaded = await store.load(conversation)
            restored = self._folded(conversation, loaded)
            sound = {e.id for e in loaded.entries if e.body == entries[e.id].body}
            if lacking := entries.keys() - sound:
                self._require_said(restored, lacking, store, entries)
                is_healed = True
                await store.append([entries[i] for i in sorted(lacking)])
            if self.truth.kind != "hub":
                await SavedAcks(store, folders.HUB).unacked(restored)
        return is_healed

    def _folded(self, conversation: ConversationId, loaded: Loaded) -> Conversation:
        entries = self.truth.entries[conversation]
        if loaded.lost or {entry.id: entry for entry in loaded.entries} != entries:
            return Conversation.restore(conversation, loaded.entries, loaded.lost)
        if conversation not in self.folded:
            restored = Conversation.restore(conversation, loaded.entries, loaded.lost)
            self.folded[conversation] = restored
        return self.folded[conversation]

    def _require_said(
        self,
        restored: Conversation,
        lacking: set[EntryId],
        store: Store,
        entries: Mapping[EntryId, Entry],
    ) -> None:
        """Require that the loss of entries is known: by id, by a missing body, or by number."""
        known = restored.damage.missing | restored.log.pending.keys()
        known |= {e.id for e in restored.log.entries.values() if e.body is None}
        unsaid = lacking - known
        # An entry that nothing names any more is found by comparing heads with a peer.
        named = {i for e in entries.values() for i in e.header.ancestors()}
        if self.has_said_loss or store.lost_count or restored.damage:
            return
        if unsaid & named:
            raise Violation(f"{len(unsaid)} entries are gone without a word")

    async def _compare(self) -> None:
        async with await Store.open(self.log) as store:
            held = {stored.conversation for stored in await store.conversations()}
            if held != self.truth.entries.keys():
                raise Violation("another conversation is listed")
            for conversation, entries in self.truth.entries.items():
                loaded = await store.load(conversation)
                if {e.id: e for e in loaded.entries} != entries or loaded.lost:
                    raise Violation("a peer's entries did not complete the log")

    async def _serve(self, unserved_max: int) -> bool:
        """Start and stop the hub; return whether a conversation was not served."""
        async with await Store.open(self.log) as store:
            blobs = BlobStores(*self._blobs())
            driver = HubDriver(Hub(self.truth.public, Policy()), store, blobs)
            await blobs.sweep()
            await driver.start()
            try:
                self._require_deleted(driver.hub, store)
                unserved = [c for c in self.truth.entries if not _is_served(driver.hub, c)]
                self._require_asking(driver.hub, unserved, unserved_max)
            finally:
                await driver.stop()
            is_healed = await _use_mailboxes(store)
        return is_healed or bool(unserved)

    def _require_deleted(self, hub: Hub, store: Store) -> None:
        is_said = self.hides_much and (self.has_said_loss or store.lost_count)
        if folders.deleted()[0].conversation not in hub.deleted and not is_said:
            raise Violation("a deletion is forgotten")

    def _require_asking(self, hub: Hub, unserved: list[ConversationId], unserved_max: int) -> None:
        unsaid = [c for c in unserved if not (unserved_max and _is_asking(hub, c))]
        # A repair that has lost a page says how many entries members have to send.
        is_said = unserved_max and self.has_said_loss
        if len(unsaid) > unserved_max and not is_said:
            raise Violation(f"{len(unserved)} conversations are not served, without a word")

    # --- the rest -----------------------------------------------------------------------

    def _blobs(self) -> tuple[Blobs, ExpiringBlobs]:
        return Blobs(self.folder / "blobs"), ExpiringBlobs(self.folder / "expiring")

    async def blobs(self) -> bool:
        """Read the blobs: what was written, or nothing, and then its writer writes it again."""
        conversation, is_healed = next(iter(self.truth.entries)), False
        for blobs in self._blobs():
            try:
                pieces = [p async for p in blobs.read(conversation, folders.BLOB_DIGEST)]
            except BlobMissing:
                is_healed = True
                continue
            if b"".join(pieces) != folders.BLOB:
                raise Violation("other bytes were served under a digest")
        return is_healed

    async def journal(self) -> bool:
        """Resume a run: with its first tokens, or from the beginning."""
        read = Journals(self.folder / "journal").read(folders.HEAD.request)
        if read is None:
            return True
        head, choices = read
        if head != folders.HEAD or choices != folders.TOKENS[: len(choices)]:
            raise Violation("a run resumes as another one")
        return choices != folders.TOKENS

    async def derived(self) -> bool:
        """Restore a checkpoint: its first pages, of which the rest is computed from the log."""
        store = folders.checkpoints_of(self.folder)
        try:
            pages = restore(store, b"a", folders.NAMESPACE, [*folders.IDS, 1])
        except AntiphonError:
            return True
        if pages.tokens and pages != filled(pages.tokens):
            raise Violation("a restored page differs")
        return pages.tokens != len(folders.IDS)


async def _use_values(store: Store, truth: Truth) -> bool:
    is_healed, first = False, next(iter(truth.entries))
    try:
        current = await store.get_meta(folders.CURRENT)
    except ValueDamaged:
        is_healed = True
        await store.put_meta(folders.CURRENT, first)
    else:
        if current not in (None, first):
            raise Violation("another conversation is the last used")
    names = await petnames.names(store)
    if names not in ({}, folders.NAMES):
        raise Violation("a key has another name")
    pinned = await pinned_key(store, folders.ADDRESS)
    if pinned not in (None, folders.HUB):
        raise Violation("another hub is trusted")
    return is_healed or not names


async def _use_mailboxes(store: Store) -> bool:
    """Read the mailboxes, of which a damaged part counts as empty."""
    try:
        stored = await store.get_meta(folders.MAILBOXES)
    except ValueDamaged:
        return True
    if stored and not stored.startswith(folders.MAILBOX):
        raise Violation("another mailbox is open")
    return not stored


def _is_asking(hub: Hub, conversation: ConversationId) -> bool:
    held = hub.shelf.get(conversation)
    return held is not None and bool(held.damage.missing)


def _is_served(hub: Hub, conversation: ConversationId) -> bool:
    held = hub.shelf.get(conversation)
    return held is not None and not held.is_blocked
