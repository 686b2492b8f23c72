"""A handle of a conversation: where its next entry goes, and how its requests are made."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from antiphon.library.errors import LoopUnsuitable, ReplicaClosed
from antiphon.library.io.once import ELSEWHERE, Keeping, Opened, running_loop
from antiphon.library.io.steps import Steps
from antiphon.library.io.unpickled import Unpickled
from replica.conversation import Conversation as Held
from replica.conversation import (
    Place,
    newest_place,
    place_at,
    place_on_branch,
    removal_of,
)
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io import HostMissing, Replica, begin, turns
from replica.log import Body, CallKey
from replica.refusals import ArgumentInvalid

SYNC_S = 5.0
"""Seconds to wait for a linked hub before going on with what is here."""


@dataclass(slots=True)
class Shared(Keeping):
    """The parts that all handles of a replica share."""

    pinned: PublicKey | None
    """The model host to grant new conversations to; else one the hub vouches for."""
    running: WeakSet[Steps[Any]] = field(default_factory=WeakSet, kw_only=True)
    """The runs that somebody has begun to read, which end with the replica."""


@dataclass(slots=True)
class Cursor:
    """The place of a handle: behind an entry, on the branch of a request, or the newest."""

    at: EntryId | None = None
    request: EntryId | None = None


class Handle(Unpickled, Opened):
    """The part of a conversation that its runs use too."""

    def __init__(
        self,
        replica: Replica,
        conversation: ConversationId,
        shared: Shared,
        cursor: Cursor | None = None,
    ) -> None:
        """Use `Replica.conversation`."""
        self._replica = replica
        self.id = conversation
        """The id, 32 bytes."""
        self._shared: Shared = shared
        self._cursor = cursor or Cursor()
        self._moving = asyncio.Lock()

    def __repr__(self) -> str:
        """Return the kind of handle and the beginning of the id."""
        return f"<{type(self).__name__} {short(self.id)}>"

    @property
    def replica(self) -> Replica:
        """The replica of the handle. Raises ReplicaClosed once it is closed, LoopUnsuitable."""
        return usable(self._replica)

    async def check_taken(self) -> None:
        """Refuse to write what the hub would never take. Raises KeyRemoved, ConversationDeleted."""
        self.replica.hub.check_taken(await self._held())

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Let nobody else use the place of the handle between its reading and the next move.

        Two turns through one handle would read the same place: behind an entry each would begin
        a branch of its own. Raises ReplicaClosed, LoopUnsuitable.
        """
        usable(self._replica)
        async with self._moving:
            yield

    def _note_run(self, run: Steps[Any]) -> None:
        """Let a run end with the replica, whoever reads it then."""
        self._shared.running.add(run)

    async def place(self) -> Place:
        """Return the place of the next entry. Raises ArgumentInvalid for an unknown one."""
        held, cursor = await self._held(), self._cursor
        if cursor.at is not None and cursor.at not in held.log.entries:
            raise ArgumentInvalid(f"no entry {short(cursor.at)} of this conversation is here")
        if cursor.at is not None:
            return place_at(held, cursor.at)
        if cursor.request is not None and cursor.request in held.log.entries:
            return place_on_branch(held, cursor.request)
        return newest_place(held)

    def went_on(self, request: EntryId) -> None:
        """Follow the branch of a request from now on."""
        self._cursor = Cursor(request=request)

    async def options(self, *, key: CallKey | None, **given: Any) -> turns.RequestOptions:
        """Return the options of a request; a conversation without a host is granted to one.

        Raises NoHost, HostMissing and KeyRemoved.
        """
        held = await self._held()
        if not has_host(held):
            await self.grant_host()
            held = await self._held()
        await begin.learn_hosts_of(self.replica, held)
        return begin.request_options(self.replica, held, key=key, **given)

    async def grant_host(self, *, back_s: float = begin.HOST_BACK_S) -> None:
        """Grant the conversation to the host pinned, or vouched for by the hub; log which it is.

        A host that was there before is waited for `back_s` seconds. One that was removed from
        the conversation gets no grant. Raises NoHost, HostMissing for a member that is no owner
        or where no other host is left, and KeyRemoved.
        """
        held, ours = await self._held(), self.replica.public
        if not held.log.membership.is_owner(ours):
            raise removal_of(held, ours) or HostMissing()
        wait_s = begin.HUB_WAIT_S if self.replica.hub.is_configured else 0.0
        pinned, removed = self._shared.pinned, held.log.membership.kept
        choice = await begin.choose_host_to_grant(
            self.replica, pinned, None, wait_s, back_s, removed=removed
        )
        if choice.key in removed:
            raise HostMissing(f"its host {short(choice.key)} was removed from the conversation")
        await begin.grant_to_host(self.replica, self.id, choice)

    async def caught_up(self) -> None:
        """Wait for what a linked hub holds, so that the calls of other devices are found."""
        hub = self.replica.hub
        since = hub.compare(self.id)

        def is_decided() -> bool:
            is_there = hub.is_in_sync(self.id, since)
            return hub.is_away or is_there or hub.ending(self.id) is not None

        if hub.is_configured:
            await self.replica.wait_for(is_decided, SYNC_S)

    async def _held(self) -> Held:
        return await self.replica.load(self.id)


def opened(replica: Replica) -> Replica:
    """Return a replica that is not closed. Raises ReplicaClosed."""
    if replica.is_closed:
        raise ReplicaClosed
    return replica


def usable(replica: Replica) -> Replica:
    """Return a replica that is not closed, for its own event loop.

    Another loop would change its state beside it. Raises ReplicaClosed, LoopUnsuitable.
    """
    if opened(replica).loop is not running_loop():
        raise LoopUnsuitable(ELSEWHERE)
    return replica


def check_loop(replica: Replica) -> None:
    """Refuse what another event loop reads, before it waits for a lock of the replica's loop.

    In its own loop an iterator of a closed replica goes on to its end. Raises LoopUnsuitable,
    ReplicaClosed.
    """
    if replica.loop is not running_loop():
        usable(replica)


async def append(at: Handle, body: Body, place: Place) -> None:
    """Write one entry of this replica's key at a place, if the hub takes it (`check_taken`)."""
    await at.check_taken()
    await at.replica.append(at.id, body, parents=place.parents, basis=place.basis)


def has_host(held: Held) -> bool:
    """Say whether a model host is a member."""
    return bool(held.log.membership.hosts())
