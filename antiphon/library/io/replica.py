"""A replica for programs: a folder with a key and conversations, linked to a hub."""

import asyncio
import os
from collections.abc import AsyncIterator, Set
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TypeVar

from antiphon.library import events as e
from antiphon.library import given
from antiphon.library.errors import ProcessForked, ReplicaClosed
from antiphon.library.io.all_synced import AllSynced
from antiphon.library.io.asked_for import AskedFor
from antiphon.library.io.conversation import Conversation
from antiphon.library.io.feed import Feed
from antiphon.library.io.handle import SYNC_S, Shared, has_host, usable
from antiphon.library.io.once import Opened, async_once
from antiphon.library.io.own_titles import OwnTitles
from antiphon.library.io.steps import Items
from antiphon.library.io.to_its_end import to_its_end
from antiphon.library.io.unpickled import Unpickled
from replica.conversation import Invitation, check_name, is_address, read_code
from replica.errors import Unavailable
from replica.ids import KEY_BYTES, ConversationId, EntryId, PublicKey, key_from_hex, short
from replica.io import (
    FolderUse,
    Opening,
    Redeeming,
    await_grant,
    begin,
    check_folder,
    check_usable,
    documents,
    has_joined,
    has_lost_grpc,
    hear_list,
    keys,
    require_link,
    save_hub,
    saved_hub,
    take_folder,
    turns,
)
from replica.io import Replica as Core
from replica.link import SyncState
from replica.log import Sampling
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    HubUnreachable,
    NoHost,
    PeerIdentityChanged,
)

T = TypeVar("T")

_NAME = "library name "
_SETTLED = frozenset({SyncState.SYNCHRONIZED, SyncState.DENIED, SyncState.DESYNCHRONIZED})


class Replica(Unpickled, Opened):
    """The conversations of one key on this machine; works offline.

    >>> found = await me.conversation("trip", system="Be brief.")
    >>> found.id in [one.id for one in await me.conversations()]
    True
    """

    def __init__(self, core: Core, shared: Shared) -> None:
        """Use `open`."""
        self._replica = core
        self._shared: Shared = shared
        self._creating = asyncio.Lock()
        self._asked_for = AskedFor(core)
        self._titles = OwnTitles(core.public)

    @property
    def _listed(self) -> Set[ConversationId]:
        """The conversations that the hub lists, as many as the core remembers."""
        return self._replica.on_demand.selection.listed

    @property
    def key(self) -> PublicKey:
        """The public key of this replica.

        >>> len(me.key)
        32
        """
        return self._replica.public

    @property
    def is_linked(self) -> bool:
        """Whether the hub is linked now.

        >>> me.is_linked
        True
        """
        return self._replica.hub.is_linked

    @property
    def _core(self) -> Core:
        """The replica of all calls. Raises ReplicaClosed once it is closed, LoopUnsuitable."""
        return usable(self._replica)

    async def conversation(
        self, name: str, *, system: str | None = None, sampling: Sampling | None = None
    ) -> Conversation:
        """Return the conversation with this name that this key created; create it if needed.

        The name is the title that this key gave it, 1 to 64 characters in one line; a title that
        another member sets changes nothing. `system` and `sampling` apply only to a new one. A
        linked hub is asked first, so that another device with this key finds it too; if two
        devices created one independently, the older is returned. A name has no spaces at its ends
        and no joined emoji. Raises ArgumentInvalid, BodyTooLarge for a system text of over 511
        KiB, and ClockInvalid.

        >>> found = await me.conversation("Lisbon", system="Be brief.")
        >>> await found.title()
        'Lisbon'
        """
        check_name(given.check_text(name, "the name"))
        if system is not None:
            given.check_system(system)
        given.check_sampling(sampling)
        claim = self._core.processes.exclusive((_NAME + name).encode())
        async with self._creating, claim:
            remembered = await self._remembered(name)
            if remembered is None:
                await self._hear_of_all()
            found = await self._oldest_named(name, remembered)
            if found is None:
                found = await to_its_end(self._begin(name, sampling))
            held = await self._core.load(found)
            handle = self._handle(found)
            if documents.title_of(held) is None:  # new, or its beginning was cut off
                await self._complete(handle, name, system)
        await self._core.store.put_meta(_NAME + name, found)
        await self._core.follow(found)
        return handle

    async def get(self, conversation: ConversationId) -> Conversation:
        """Return a conversation by its id; one that a hub lists is fetched from there first.

        Raises ConversationUnknown, ArgumentInvalid, and the error of the link if the hub has to be
        asked and is unreachable.

        >>> found = await me.get(trip.id)
        >>> found.id == trip.id
        True
        """
        given.check_id(conversation, "the conversation")
        core, hub, is_settled = self._core, self._core.hub, True
        async with self._asked_for.following(conversation):
            if hub.is_configured:
                is_settled = await core.wait_for(lambda: self._is_settled(conversation), SYNC_S)
            if await _is_here(core, conversation):
                return self._handle(conversation)
            if hub.is_configured and not (hub.is_linked and is_settled):
                raise hub.last_error or HubUnreachable("the hub has not answered")
            raise ConversationUnknown  # nothing of it is here, and the hub has refused it

    async def conversations(self) -> tuple[Conversation, ...]:
        """Return all conversations held here, ordered by id.

        >>> trip.id in [one.id for one in await me.conversations()]
        True
        """
        return tuple(self._handle(one) for one in await self._stored())

    async def join(self, code: str, *, timeout_s: float | None = None) -> Conversation:
        """Join a conversation at this replica's hub with a code of `Conversation.invite`.

        Waits until the inviter's replica has answered, for at most `timeout_s` seconds or, by
        default, until the code expires. To wait again, call it with the same code. `antiphon.join`
        opens a replica for a code. Raises JoinPending after the timeout, InviteInvalid,
        InviteExpired, ArgumentInvalid for a code of this key, HubUnreachable, the inviter's
        refusal, and PeerIdentityChanged if the code is for another hub.

        >>> code = await trip.invite("bob")
        >>> async with aio.open("~/bob", hub="127.0.0.1:7411") as bob:
        ...     shared = await bob.join(code)
        >>> shared.id == trip.id
        True
        """
        given.check_timeout(timeout_s)
        invitation = read_code(given.check_text(code, "the code"))
        await check_usable(self._core.store, invitation, self.key)
        return await self._join(invitation, timeout_s)

    async def _join(self, invitation: Invitation, timeout_s: float | None) -> Conversation:
        try:
            await require_link(self._core, SYNC_S)
        except Unavailable:
            if await has_joined(self._core.store, invitation, self.key):
                return await self.get(invitation.conversation)  # the hub is not needed for it
            raise
        if self._core.hub.key != invitation.hub_key:
            raise PeerIdentityChanged(
                f"the code is for the hub {short(invitation.hub_key)} at {invitation.hub_address};"
                " antiphon.join(code, folder) opens a replica there"
            )
        await await_grant(self._core, invitation, timeout_s=timeout_s)
        return await self.get(invitation.conversation)

    def events(self) -> Items[e.Event]:
        """Return an endless iterator over what happens in all conversations from now on.

        Raises what `Conversation.events` raises.

        >>> events = me.events()
        >>> entry = await trip.say("Good morning.")
        >>> async for event in events:
        ...     if isinstance(event, antiphon.Said):
        ...         break
        >>> event.conversation == trip.id, event.text
        (True, 'Good morning.')
        """
        return Feed(self._core).events()

    async def sync(self, timeout_s: float = 20.0) -> bool:
        """Wait until hub and replica hold the same everywhere; return False after the timeout.

        Returns False immediately if all is in sync except entries that the hub refused, for
        example because of a quota.
        Conversations that the hub will never accept again are ignored: those that were deleted,
        and those from which this key was removed. So are those deleted here during the call.
        Raises ReplicaClosed, also if the replica is closed during the call.

        >>> await me.sync(timeout_s=5.0)
        True
        """
        given.check_limit(timeout_s)
        synced = AllSynced(self._core.hub, self._listed)
        return await synced.wait(self._core, self._stored, timeout_s)

    # --- names --------------------------------------------------------------------------

    async def _begin(self, name: str, sampling: Sampling | None) -> ConversationId:
        begun = await begin.begin(self._core, sampling, (), None)
        await self._core.store.put_meta(_NAME + name, begun)
        return begun

    async def _stored(self) -> list[ConversationId]:
        """Return the conversations held here. Raises ReplicaClosed, also if it closes meanwhile."""
        return [one.conversation for one in await self._core.store.conversations()]

    def _handle(self, conversation: ConversationId) -> Conversation:
        return Conversation(self._core, conversation, self._shared)

    async def _remembered(self, name: str) -> ConversationId | None:
        """Return the conversation that this replica knows by a name, unless its key renamed it."""
        saved = await self._core.store.get_meta(_NAME + name)
        if saved is None or not await self._core.store.has(ConversationId(saved)):
            return None
        held = await self._core.load(ConversationId(saved))
        return held.id if self._titles.of(held) in (None, name) else None

    async def _oldest_named(
        self, name: str, remembered: ConversationId | None
    ) -> ConversationId | None:
        """Return the oldest conversation that this key began, and gave a name (DECISIONS D245)."""
        found = []
        for stored in await self._stored():
            held = await self._core.load(stored)
            genesis = held.log.entries.get(EntryId(held.id))
            if genesis is None or genesis.header.author != self.key:
                continue
            if held.id == remembered or self._titles.of(held) == name:
                found.append((genesis.header.create_time_ms, held.id))
        return min(found)[1] if found else remembered

    async def _complete(self, handle: Conversation, name: str, system: str | None) -> None:
        held = await self._core.load(handle.id)
        if system is not None and len(held.log) == 1:
            place = await handle.place()
            await turns.say_as_system(self._core, handle.id, system, place)
        if not has_host(held):
            with suppress(NoHost):  # offline, or none is there yet: the first request asks again
                await handle.grant_host(back_s=0.0)
        await handle.rename(name)

    async def _hear_of_all(self) -> None:
        """Wait until the conversations that the hub lists for this key are here."""
        core = self._core
        if not core.hub.is_configured:
            return
        await hear_list(core, SYNC_S)
        if self.is_linked:
            await core.wait_for(lambda: all(map(self._is_settled, self._listed)), SYNC_S)

    def _is_settled(self, conversation: ConversationId) -> bool:
        hub = self._core.hub
        return hub.is_away or hub.state(conversation) in _SETTLED


async def _is_here(core: Core, conversation: ConversationId) -> bool:
    """Say whether anything of a conversation is held here."""
    try:
        held = await core.load(conversation)
    except ConversationUnknown:
        return False
    return held.log.genesis is not None or held.is_blocked


@async_once
async def open_replica(
    folder: str | Path,
    *,
    hub: str | None = None,
    host: str | PublicKey | None = None,
    label: str | None = None,
) -> AsyncIterator[Replica]:
    """Open a replica in a folder, created if needed, and link it to a hub; close it on exit.

    The folder holds a key and a store. Several processes may open it, for example an agent and
    its user's command line; one of them writes the store for all. `label` names this process in
    the messages it writes, in at most 64 bytes. `hub` defaults to the hub where this replica
    joined, if any. The replica follows every conversation of its key, and answers newcomers that
    it has invited. `host` is the key of the model host to grant new conversations to; the default
    is a host that the hub vouches for. Raises ArgumentInvalid, StoreLocked, KeyFileInvalid or
    another StoreError, and ProcessForked in a process forked from one that has used a hub. An
    unreachable hub is not an error.

    >>> async with aio.open("~/agent", hub="127.0.0.1:7411", label="agent") as me:
    ...     trip = await me.conversation("trip")
    ...     answer = await trip.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """
    async with opening(folder, hub=hub, host=host, label=label) as replica:
        yield replica


def opening(
    folder: str | Path,
    *,
    hub: str | None = None,
    host: str | PublicKey | None = None,
    label: str | None = None,
) -> Opening[Replica]:
    """Return what `open_replica` enters. Raises ArgumentInvalid."""
    path, pinned = folder_path(folder), _host_key(host)
    for text, name in ((hub, "hub"), (label, "label")):
        if text is not None:
            given.check_text(text, name)
    if hub and not is_address(hub):
        raise ArgumentInvalid(f"hub is '{hub}', and not host:port")
    address = hub or saved_hub(path)
    return _opened(path, address, None, pinned, label)


@async_once
async def join(
    code: str, folder: str | Path, *, timeout_s: float | None = None
) -> AsyncIterator[Conversation]:
    """Join with a code as the replica in a folder, created if needed; close it on exit.

    The code contains the hub's address and key. The folder keeps both, so that
    `antiphon.open(folder)` links there from then on. Waits like `Replica.join`, and raises the
    same errors, those of `open`, and ArgumentInvalid for a folder of another hub, whose
    conversations would be sent to the hub of the code.

    >>> code = await trip.invite("bob")
    >>> async with aio.join(code, "~/bob") as shared:
    ...     answer = await shared.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """
    path = folder_path(folder)
    given.check_timeout(timeout_s)
    invitation = read_code(given.check_text(code, "the code"))
    await take_folder(path, FolderUse.REPLICA, FolderUse.HOST)
    store = path / "log" / "log.db"
    key = keys.load_or_begin(path / "identity.key", store)
    async with Core.open(store, key, shared=True) as core:
        await check_usable(core.store, invitation, core.public)
        await check_folder(core.store, invitation, saved_hub(path))
    async with _opened(path, invitation.hub_address, invitation.hub_key, None) as replica:
        joined = await replica._join(invitation, timeout_s)
        save_hub(path, invitation.hub_address)
        yield joined


def _opened(
    path: Path,
    hub: str | None,
    hub_key: PublicKey | None,
    host: PublicKey | None,
    label: str | None = None,
) -> Opening[Replica]:
    async def enter(stack: AsyncExitStack) -> Replica:
        if hub is not None and has_lost_grpc():
            raise ProcessForked("its parent had used gRPC, which a hub is linked by")
        await take_folder(path, FolderUse.REPLICA, FolderUse.HOST)
        store = path / "log" / "log.db"
        key = keys.load_or_begin(path / "identity.key", store)
        core = await stack.enter_async_context(
            Core.open(store, key, hub, hub_key=hub_key, follow=True, shared=True, label=label)
        )
        for stored in await core.store.conversations():
            await core.follow(stored.conversation)
        redeeming = Redeeming(core, lambda _joined: None)  # MemberChanged says who has joined
        redeeming.start()
        stack.push_async_callback(redeeming.stop)
        shared = Shared(host)
        stack.push_async_callback(_end_runs, shared)
        return Replica(core, shared)

    return Opening(enter)


async def _end_runs(shared: Shared) -> None:
    """End what is read no more, too: a tool whose result can't be written is cancelled."""
    for run in tuple(shared.running):
        await run.end(ReplicaClosed())


def folder_path(folder: str | Path) -> Path:
    """Return the path of a folder, that of `~` included. Raises ArgumentInvalid."""
    if folder == "":
        raise ArgumentInvalid("the folder has no name; '.' is the current one")
    try:
        path = Path(folder).expanduser()
        is_path = b"\0" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        is_path = False
    except RuntimeError as error:
        raise ArgumentInvalid(f"the folder is {folder!r}, and that home is not known") from error
    if not is_path:
        raise ArgumentInvalid(f"the folder is {folder!r}, and no path")
    return path


def _host_key(host: str | PublicKey | None) -> PublicKey | None:
    if host is None or (isinstance(host, bytes) and len(host) == KEY_BYTES):
        return host
    if not isinstance(host, str):
        raise ArgumentInvalid(
            f"host is {host!r}, and no key of {KEY_BYTES} bytes or its hex digits"
        )
    try:
        return key_from_hex(host)
    except ValueError as error:
        raise ArgumentInvalid(str(error)) from error
