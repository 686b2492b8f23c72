"""The context of every command: settings, output, key, and the replica's store.

A command either opens the replica, which one process at a time can do, or only
reads the store, which any number of processes can do at the same time.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.config import Settings
from antiphon.cli.errors import EntryUnknown, NothingHere, PrefixAmbiguous, PrefixUnknown
from antiphon.cli.output import Output
from antiphon.cli.rows import counted
from replica.conversation import (
    Conversation,
    EntryStore,
    Place,
    newest_place,
    place_at,
    place_on_branch,
)
from replica.errors import AntiphonError
from replica.ids import ID_BYTES, ConversationId, EntryId, short
from replica.io import Replica, error_of, fetch_missing, keys, open_read_only
from replica.link import EntryFailed, Event, SyncState
from replica.refusals import ConversationDamaged, ConversationUnknown

LOST_STEP = "Connect to a hub that holds them; they are then restored automatically."
STRANGER_S = 0.5
"""Longest wait for a conversation of which our key is no member, in seconds."""
_CURRENT = "cli current"


@dataclass(slots=True)
class Choices:
    """Local choices of this replica for the next message of a conversation."""

    at: str = ""
    """Hex id of an entry to branch at; empty for none."""
    branch: str = ""
    """Hex id of the request whose branch continues; empty for the newest branch."""
    output_tokens_max: int = 0
    stop: list[str] = field(default_factory=list)

    def place(self, held: Conversation) -> Place:
        """Return the place of the next entry."""
        at, branch = EntryId(bytes.fromhex(self.at)), EntryId(bytes.fromhex(self.branch))
        if at in held.log.entries:
            return place_at(held, at)
        if branch in held.log.entries:
            return place_on_branch(held, branch)
        return newest_place(held)


@dataclass(slots=True)
class Session:
    """The state of one command run."""

    settings: Settings
    out: Output

    def key(self) -> Ed25519PrivateKey:
        """Read this replica's key, or create one. Raises KeyFileInvalid."""
        return keys.load_or_create(self.settings.key_path)

    @asynccontextmanager
    async def replica(self, *, linked: bool = True) -> AsyncIterator[Replica]:
        """Open the replica and link it to the hub. Raises StoreLocked and other StoreErrors."""
        address = self.settings.hub if linked else None
        async with Replica.open(self.settings.store_path, self.key(), address) as replica:
            yield replica

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[EntryStore]:
        """Open the store for reading, without its lock. Raises NothingHere or StoreError."""
        async with open_read_only(self.require_store()) as store:
            yield store

    def require_store(self) -> Path:
        """Return the path of the store. Raises NothingHere if it does not exist."""
        path = self.settings.store_path
        if not path.is_file():
            raise NothingHere(f"{path} does not exist")
        return path

    # --- which conversation -----------------------------------------------------

    async def choose(self, store: EntryStore, prefix: str | None) -> ConversationId:
        """Return the conversation with this id prefix; without one, the last used.

        Raises PrefixUnknown, PrefixAmbiguous, NothingHere.
        """
        held = [stored.conversation for stored in await store.conversations()]
        if prefix is not None:
            return ConversationId(only_match(prefix, held, "conversation", PrefixUnknown))
        if not held:
            raise NothingHere
        current = await self.current(store, held)
        if current is None:
            raise PrefixAmbiguous(f"{len(held)} conversations are held here; none was used last")
        return current

    async def current(self, store: EntryStore, held: list[ConversationId]) -> ConversationId | None:
        """Return the last used conversation among `held`, or the only one."""
        last = await store.get_meta(_CURRENT)
        if last is not None and last in held:
            return ConversationId(last)
        return held[0] if len(held) == 1 else None

    async def use(self, store: EntryStore, conversation: ConversationId) -> None:
        """Save the conversation as the last used."""
        if await store.get_meta(_CURRENT) != conversation:
            await store.put_meta(_CURRENT, conversation)

    async def choices(self, store: EntryStore, conversation: ConversationId) -> Choices:
        """Return the saved choices for the next message."""
        raw = await store.get_meta(f"cli {conversation.hex()}")
        return Choices(**json.loads(raw)) if raw else Choices()

    async def choose_next(
        self, store: EntryStore, conversation: ConversationId, choices: Choices
    ) -> None:
        """Save the choices for the next message."""
        record: dict[str, Any] = {
            "at": choices.at,
            "branch": choices.branch,
            "output_tokens_max": choices.output_tokens_max,
            "stop": choices.stop,
        }
        await store.put_meta(f"cli {conversation.hex()}", json.dumps(record).encode())

    # --- the hub ------------------------------------------------------------------

    async def sync(self, replica: Replica, conversation: ConversationId) -> bool:
        """Follow a conversation and wait until it is in sync; False if the hub is away.

        Raises the hub's refusal of the conversation.
        """
        refusals: list[AntiphonError] = []

        def receive(event: Event) -> None:
            match event:
                case EntryFailed(failed, None, fault) if failed == conversation:
                    if not fault.retryable:
                        refusals.append(error_of(fault))
                case _:
                    pass

        held = await replica.load(conversation)
        bare = _bodies_missing(held)
        stop = replica.listen(receive)
        try:
            await replica.follow(conversation)

            def is_decided() -> bool:
                away = replica.hub.last_error is not None and not replica.hub.is_linked
                return away or bool(refusals) or is_synced(replica, conversation)

            # The hub sends a non-member nothing unless it has a grant not received here yet.
            timeout_s = self.settings.sync_timeout_s
            if not held.is_blocked and not held.is_member(replica.public):
                timeout_s = min(timeout_s, STRANGER_S)
            await replica.wait_for(is_decided, timeout_s)
        finally:
            stop()
        if held.is_blocked:
            return False  # the caller reports the missing entries
        if refusals:
            raise refusals[0]
        if not is_synced(replica, conversation):
            return False
        # The link asks for them too; the first answer counts.
        await fetch_missing(replica, conversation)
        fetched = bare - _bodies_missing(held)
        if fetched:
            self.out.note(f"{counted(fetched, 'body', 'bodies')} fetched again from the hub")
        return True

    async def say_offline(self, replica: Replica, held: Conversation) -> int:
        """Print the number of entries to be sent to the hub; return it."""
        if held.is_blocked:
            self.say_damaged(held)
            return 0
        if not held.is_member(replica.public):
            is_linked = replica.hub.is_linked
            reason = "your key is no member" if is_linked else "offline: the hub is away"
            self.out.note(f"{reason}; showing the local copy")
            return 0
        waiting = replica.hub.unsynced(held.id)
        self.out.note(offline_words(waiting))
        return waiting

    def say_damaged(self, held: Conversation) -> None:
        """Print the losses of this store in a conversation, with the next step."""
        count = len(held.damage.missing)
        loss = f"lacks {counted(count, 'entry', 'entries')}" if count else "can't be read"
        step = ConversationDamaged.next_step if held.is_blocked else LOST_STEP
        self.out.note(f"{short(held.id)} {loss} that the store here lost. {step}")


def _bodies_missing(held: Conversation) -> int:
    return sum(entry.body is None for entry in held.log.entries.values())


def offline_words(waiting: int) -> str:
    """Return the number of entries to be sent to the hub as text."""
    if not waiting:
        return "offline: the hub is away; it has all entries written here"
    return f"offline: {counted(waiting, 'entry', 'entries')} will be sent when the hub is back"


def is_synced(replica: Replica, conversation: ConversationId) -> bool:
    """Say whether hub and replica hold the same entries."""
    synced = replica.hub.state(conversation) is SyncState.SYNCHRONIZED
    return synced and not replica.hub.unsynced(conversation)


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
    return await asyncio.to_thread(Conversation.restore, conversation, loaded.entries, loaded.lost)


def find_entry(held: Conversation, prefix: str) -> EntryId:
    """Return the entry with this id prefix. Raises EntryUnknown, PrefixAmbiguous."""
    return EntryId(only_match(prefix, held.log.entries, "entry", EntryUnknown))


def only_match(
    prefix: str,
    ids: "list[ConversationId] | dict[EntryId, Any]",
    noun: str,
    unknown: type[AntiphonError],
) -> bytes:
    """Return the only id whose hex digits begin with `prefix`. Raises `unknown`."""
    wanted = prefix.strip().lower()
    if not wanted or len(wanted) > 2 * ID_BYTES or set(wanted) - set("0123456789abcdef"):
        raise unknown(f"'{prefix}' is not the beginning of an id: ids are 64 hex digits")
    found = [id_ for id_ in ids if id_.hex().startswith(wanted)]
    if not found:
        raise unknown(f"no {noun} here begins with {wanted}")
    if len(found) > 1:
        shown = ", ".join(short(id_) for id_ in sorted(found)[:4])
        raise PrefixAmbiguous(f"{len(found)} ids begin with {wanted}: {shown}")
    return found[0]
