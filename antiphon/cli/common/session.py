"""The context of every command: settings, output, key, and the replica's store.

A command either opens the replica, which other processes may have open too, or only
reads the store.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.common.config import Settings
from antiphon.cli.common.errors import EntryUnknown, NothingHere, PrefixAmbiguous, PrefixUnknown
from antiphon.cli.common.newcomers import newcomer_words
from antiphon.cli.common.next_command import next_command
from antiphon.cli.common.refusals import refusals_of
from antiphon.cli.views import (
    Losses,
    Names,
    Output,
    bodies_missing,
    brief,
    counted,
    losses_in,
    lost_words,
    step_of,
)
from replica.conversation import (
    Conversation,
    EntryStore,
    JoinPending,
    Place,
    newest_place,
    place_at,
    place_instead_of,
    place_on_branch,
    refusal_of,
    removal_of,
)
from replica.errors import AntiphonError, StoreError
from replica.ids import ID_BYTES, ConversationId, EntryId, PublicKey, short
from replica.io import (
    FolderTaken,
    FolderUse,
    Joined,
    KeyFileGone,
    Redeeming,
    Replica,
    SavedAcks,
    documents,
    error_of,
    fetch_missing,
    keys,
    means_away,
    open_read_only,
    petnames,
    pinned_key,
    require_content,
    restored,
    take_folder,
)
from replica.log import public_key
from replica.refusals import (
    ConversationUnknown,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    ValueDamaged,
)

STRANGER_S = 0.5
"""Longest wait for a conversation of which our key is no member, in seconds."""
STILL_READ = (StoreLocked, StoreReadOnly, StoreFull, FolderTaken, KeyFileGone)
"""Refusals to open a replica in a folder whose log can be read all the same."""
_CURRENT = "cli current"


@dataclass(slots=True)
class Choices:
    """Local choices of this replica for the next message of a conversation."""

    at: str = ""
    """Hex id of an entry to branch at; empty for none."""
    is_instead: bool = False
    """Whether the next message comes in place of the message `at`, and not behind it."""
    branch: str = ""
    """Hex id of the request whose branch continues; empty for the newest branch."""

    def place(self, held: Conversation) -> Place:
        """Return the place of the next entry."""
        at, branch = EntryId(bytes.fromhex(self.at)), EntryId(bytes.fromhex(self.branch))
        if at in held.log.entries:
            return place_instead_of(held, at) if self.is_instead else place_at(held, at)
        if branch in held.log.entries:
            return place_on_branch(held, branch)
        return newest_place(held)


@dataclass(slots=True)
class Session:
    """The state of one command run."""

    settings: Settings
    out: Output
    beside: Callable[[], AbstractContextManager[None]] = nullcontext
    """Surrounds lines that may come at any time, so that a panel of the screen makes room."""

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self.settings.data_dir.expanduser()

    def key(self) -> Ed25519PrivateKey:
        """Read this replica's key, or create that of a new one. Raises KeyFileInvalid."""
        return keys.load_or_begin(self.settings.key_path, self.settings.store_path)

    def own_key(self) -> PublicKey | None:
        """Return this replica's public key, if it has one."""
        return public_key(self.key()) if self.settings.key_path.exists() else None

    async def names(self, store: EntryStore, held: Conversation) -> Names:
        """Return the user's names for keys, and those proposed in a conversation."""
        given = await petnames.names(store)
        return Names(self.own_key(), given, documents.proposed_names(held))

    @asynccontextmanager
    async def replica(
        self, *, linked: bool = True, redeeming: bool = True, hub_key: PublicKey | None = None
    ) -> AsyncIterator[Replica]:
        """Open the replica and link it to the hub. Raises FolderTaken and other StoreErrors.

        Newcomers are answered meanwhile, unless `redeeming` is off.
        `hub_key` is the key that the hub must prove, None for the one pinned.
        """
        await take_folder(self.folder, FolderUse.REPLICA, FolderUse.HOST)
        address, path = self.settings.hub if linked else None, self.settings.store_path
        opening = Replica.open(path, self.key(), address, hub_key=hub_key, shared=True)
        async with opening as replica:
            self.say_lost(replica.store)
            answering = Redeeming(replica, self.say_joined)
            if linked and redeeming:
                answering.start()
            try:
                yield replica
            finally:
                await answering.stop()

    def say_joined(self, joined: Joined) -> None:
        """Print what became of a newcomer's proof."""
        invitation, name = joined.issued.invitation, joined.issued.name
        of = (name, short(invitation.conversation))
        role = invitation.role.name.lower()
        inviting = next_command(self.settings, "invite", *of, "--role", role)
        removing = next_command(self.settings, "members", "remove", *of)
        with self.beside():
            self.out.note(newcomer_words(joined, inviting, removing))

    def say_waiting(self, reason: AntiphonError) -> None:
        """Print why a newcomer waits."""
        if isinstance(reason, JoinPending):
            again = next_command(self.settings, "join", "CODE")
            self.out.note(
                "waiting until the inviter runs antiphon status, send or chat (log -f admits"
                f" nobody) [JOIN_PENDING]; Ctrl-C leaves, and {again} goes on"
            )
        else:
            self.out.note(f"waiting: {brief(reason)}")

    def public(self) -> PublicKey:
        """Return this replica's public key."""
        return public_key(self.key())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[EntryStore]:
        """Open the store for reading, without its lock. Raises NothingHere or StoreError."""
        async with open_read_only(self.require_store()) as store:
            yield store

    def require_store(self) -> Path:
        """Return the path of the store. Raises NothingHere if there is none, StoreCorrupt."""
        if not self.has_store():
            raise NothingHere
        return self.settings.store_path

    def has_store(self) -> bool:
        """Say whether there is a store. Raises StoreCorrupt if there was one and it is gone."""
        path = self.settings.store_path
        if path.is_file():
            return True
        require_content(path)
        return False

    # --- which conversation -----------------------------------------------------

    async def choose(self, store: EntryStore, prefix: str | None) -> ConversationId:
        """Return the conversation with this id prefix; without one, the last used.

        Raises PrefixUnknown, PrefixAmbiguous, NothingHere.
        """
        held = [stored.conversation for stored in await store.conversations()]
        if prefix is not None:
            return ConversationId(only_match(prefix, held, "conversation here", PrefixUnknown))
        if not held:
            raise NothingHere
        current = await self.current(store, held)
        if current is None:
            raise PrefixAmbiguous(
                f"{len(held)} conversations are held here, and none of them was used last"
            )
        return current

    async def current(self, store: EntryStore, held: list[ConversationId]) -> ConversationId | None:
        """Return the last used conversation among `held`, or the only one."""
        last = await _saved(store, _CURRENT)
        if last is not None and last in held:
            return ConversationId(last)
        return held[0] if len(held) == 1 else None

    async def use(self, store: EntryStore, conversation: ConversationId) -> None:
        """Save the conversation as the last used."""
        if await _saved(store, _CURRENT) != conversation:
            await store.put_meta(_CURRENT, conversation)

    async def choices(self, store: EntryStore, conversation: ConversationId) -> Choices:
        """Return the saved choices for the next message."""
        raw = await _saved(store, f"cli {conversation.hex()}")
        record = json.loads(raw) if raw else {}
        return Choices(record.get("at", ""), record.get("instead", False), record.get("branch", ""))

    async def choose_next(
        self, store: EntryStore, conversation: ConversationId, choices: Choices
    ) -> None:
        """Save the choices for the next message."""
        record: dict[str, Any] = {
            "at": choices.at,
            "instead": choices.is_instead,
            "branch": choices.branch,
        }
        await store.put_meta(f"cli {conversation.hex()}", json.dumps(record).encode())

    # --- the hub ------------------------------------------------------------------

    async def sync(self, replica: Replica, conversation: ConversationId) -> bool:
        """Follow a conversation and wait until it is in sync; False if the hub is away.

        Entries that the hub refused are named in a note, and are not waited for.
        Raises the hub's refusal of the conversation, also a lasting one of earlier.
        """
        held = await replica.load(conversation)
        bare = len(bodies_missing(held))
        # What fails at the hub's disk passes too, but not while somebody waits for a command.
        with refusals_of(replica, conversation, StoreError) as refusals:
            await replica.follow(conversation)

            def is_decided() -> bool:
                hub = replica.hub
                return hub.is_away or bool(refusals) or hub.is_in_sync(conversation)

            # The hub sends a non-member nothing unless it has a grant not received here yet.
            timeout_s = self.settings.sync_timeout_s
            if not held.is_blocked and not held.is_member(replica.public):
                timeout_s = min(timeout_s, STRANGER_S)
            await replica.wait_for(is_decided, timeout_s)
        if held.is_blocked:
            return False  # the caller reports the missing entries
        final = [refusal for refusal in refusals if not isinstance(refusal, StoreError)]
        if final and held.is_member(replica.public):
            raise refusal_of(held, replica.public, final[0])  # to others it is no news
        if replica.hub.is_away and held.is_member(replica.public):
            replica.hub.check_taken(held)
        if not replica.hub.is_in_sync(conversation):
            return False
        if replica.hub.unsynced(conversation):  # refused for good: waiting changes nothing
            self.out.note(unsynced_words(replica, conversation))
        # The link asks for them too; the first answer counts.
        await fetch_missing(replica, conversation)
        fetched = bare - len(bodies_missing(held))
        if fetched:
            self.out.note(f"{counted(fetched, 'body', 'bodies')} fetched again from the hub")
        return True

    async def say_offline(self, replica: Replica, held: Conversation) -> int:
        """Print the number of entries to be sent to the hub; return it."""
        if held.is_blocked:
            self.say_damaged(held, await losses_in(replica.store, held))
            return 0
        removal = removal_of(held, replica.public)
        if removal is not None:
            self.out.note(f"{removal.detail}; showing the local copy")
            return 0
        if not held.is_member(replica.public):
            is_linked = replica.hub.is_linked
            reason = "your key is no member" if is_linked else "offline: the hub is away"
            self.out.note(f"{reason}; showing the local copy")
            return 0
        waiting = replica.hub.unsynced(held.id)
        elsewhere = await elsewhere_words(replica, self.settings.hub, [held])
        self.out.note(elsewhere or unsynced_words(replica, held.id))
        return waiting

    def say_lost(self, store: EntryStore) -> None:
        """Print the number of entries that the store lost at its end, with the next step."""
        if store.lost_count:
            lost = counted(store.lost_count, "entry", "entries")
            step = next_command(self.settings, "repair")
            self.out.note(f"the store here lost the last {lost} written to it. next: {step}")

    def say_damaged(self, held: Conversation, losses: Losses, *, is_refused: bool = False) -> None:
        """Print the losses of this store in a conversation, with the next step."""
        importing = next_command(self.settings, "import", "FILE")
        words = lost_words(held, losses, importing, is_refused=is_refused)
        self.out.note(f"{short(held.id)} {words}")


async def _saved(store: EntryStore, key: str) -> bytes | None:
    """Return a saved choice; a damaged one counts as not made, and is replaced by the next."""
    try:
        return await store.get_meta(key)
    except ValueDamaged:
        return None


def unsynced_words(replica: Replica, conversation: ConversationId) -> str:
    """Return why entries of a conversation are not known to be at the hub, as text."""
    waiting, error = replica.hub.unsynced(conversation), replica.hub.last_error
    if replica.hub.is_linked:
        refusal = replica.hub.refusal(conversation)
        sent = counted(waiting, "entry", "entries")
        if refusal is None:
            return f"the hub is linked and has not confirmed {sent} yet; they are sent again"
        return (
            f"the hub does not take {sent}: {brief(error_of(refusal))}. {refusal.next_step}"
            " What is written here is kept."
        )
    if error is None or means_away(error):
        return offline_words(waiting)
    kept = f" {counted(waiting, 'entry is', 'entries are')} sent then." if waiting else ""
    return f"not linked: {brief(error)}. {step_of(error)}{kept}"


def away_words(replica: Replica, conversation: ConversationId) -> str:
    """Return that the hub is not linked, and why if waiting does not help, as one line."""
    error = replica.hub.last_error
    if error is None or means_away(error):
        return offline_words(replica.hub.unsynced(conversation))
    return f"not linked: {brief(error)}"


def offline_words(waiting: int, kept: int = 0) -> str:
    """Return the number of entries to be sent to the hub as text; it never takes those `kept`."""
    if not waiting and kept:
        return "offline: the hub is away"
    if not waiting:
        return "offline: the hub is away; it has all entries written here"
    return f"offline: {counted(waiting, 'entry', 'entries')} will be sent when the hub is back"


async def elsewhere_words(replica: Replica, address: str, helds: Collection[Conversation]) -> str:
    """Return what of conversations another hub has, where no hub was ever met at the address.

    Empty where one was, and where no other hub has any of what is written here.
    """
    error = replica.hub.last_error
    if replica.hub.is_linked or not (error is None or means_away(error)):
        return ""
    if await pinned_key(replica.store, address) is not None:
        return ""
    of_all = SavedAcks(replica.store, None)
    unsent = sum([len(await of_all.unacked(held)) for held in helds])
    if unsent == sum(replica.hub.unsynced(held.id) for held in helds):
        return ""
    what = f"all entries written here but {unsent}" if unsent else "all entries written here"
    then = ", which are sent once a hub answers here" if unsent else ""
    return (
        f"offline: no hub was ever met at {address}; another one has {what}{then}:"
        " name it with `--hub-address HOST:PORT`"
    )


def check_readable(held: Conversation) -> Conversation:
    """Return a conversation that has a genesis entry. Raises ConversationDamaged."""
    if held.log.genesis is None:
        held.require_whole()
    return held


async def load_from(store: EntryStore, conversation: ConversationId) -> Conversation:
    """Load a conversation from the store. Raises ConversationUnknown."""
    loaded = await store.load(conversation)
    if not loaded:
        raise ConversationUnknown(f"{short(conversation)} is not held here")
    return await restored(conversation, loaded)


_SHOWN = 4
"""Ids that the error of an ambiguous beginning names."""


def find_entry(held: Conversation, prefix: str) -> EntryId:
    """Return the entry with this id prefix. Raises EntryUnknown, PrefixAmbiguous."""
    return EntryId(only_match(prefix, held.log.entries, "entry here", EntryUnknown))


def only_match(
    prefix: str,
    ids: "Collection[bytes]",
    noun: str,
    unknown: type[AntiphonError],
) -> bytes:
    """Return the only id whose hex digits begin with `prefix`. Raises `unknown`."""
    wanted = prefix.strip().lower()
    if not wanted or len(wanted) > 2 * ID_BYTES or set(wanted) - set("0123456789abcdef"):
        raise unknown(f"'{prefix}' is not the beginning of an id: ids are 64 hex digits")
    found = [id_ for id_ in ids if id_.hex().startswith(wanted)]
    if not found:
        raise unknown(f"no {noun} begins with {wanted}")
    if len(found) > 1:
        shown = ", ".join(short(id_) for id_ in sorted(found)[:_SHOWN])
        shown += ", …" if len(found) > _SHOWN else ""
        raise PrefixAmbiguous(f"{len(found)} ids begin with {wanted}: {shown}")
    return found[0]
