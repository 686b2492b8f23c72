"""Export and Import of HostService: checkpoints that travel (spec/08-checkpoint §8)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from io import FileIO
from pathlib import Path

import structlog

from antiphon.v1 import host_pb2 as pb
from model_host.errors import (
    ArchiveInvalid,
    CheckpointWriteFailed,
)
from model_host.io.calls.callers import Callers, Places, check_member
from model_host.io.files import Checkpoints, append_to_archive, store_archive, unnamed_file
from model_host.io.profiles import Loaded, Offer, Profiles
from model_host.kv import (
    ARCHIVE_SALT_BYTES,
    Manifest,
    archive_bytes,
    conversation_of,
    encrypt_archive,
    last_seal,
)
from replica import limits
from replica.conversation import Conversation
from replica.ids import EntryId, PublicKey, short
from replica.io import ArchiveTooLarge, next_message, rpc, to_the_end
from replica.limits import ARCHIVE_BYTES_MAX, EXPORTS_MAX, IMPORT_TIMEOUT_S, IMPORTS_MAX
from replica.log import Kind
from replica.refusals import NotAllowed, StoreReadOnly

log = structlog.get_logger()

_SILENCE = "no data came for too long; nothing of the archive is kept"


class ArchiveService:
    """The two calls; an archive is opened only once it has arrived as a whole."""

    def __init__(
        self,
        callers: Callers,
        profiles: Profiles,
        pages: Checkpoints,
        ring_key: bytes,
        folder: Path,
    ) -> None:
        """Encrypt with `ring_key`; receive into `folder`, which exists."""
        self._callers = callers
        self._profiles = profiles
        self._pages = pages
        self._ring_key = ring_key
        self._folder = folder
        self._exports, self._imports = Places(EXPORTS_MAX), Places(IMPORTS_MAX)

    def handlers(self) -> rpc.Handlers:
        """Return the byte-level handlers, by method."""
        return {
            "Export": rpc.server_stream(pb.ExportRequest, self.export, admit=self._callers.admit),
            "Import": rpc.both_streams(pb.ImportRequest, self.import_),
        }

    async def _writable(
        self, conversation: bytes, context: rpc.Context
    ) -> tuple[Conversation, PublicKey]:
        """Return a conversation in which the caller may ask for answers, and the caller."""
        held, peer = await self._callers.member(conversation, context)
        _check_writer(held, peer)
        return held, peer

    async def export(
        self, request: pb.ExportRequest, context: rpc.Context
    ) -> AsyncIterator[pb.ExportResponse]:
        """Yield an archive of the newest checkpoint. Raises CheckpointMissing, ArchiveTooLarge.

        A caller that does not read loses its place: gRPC can't end the call (DECISIONS D35).
        """
        loop = asyncio.get_running_loop()
        held, peer = await self._writable(request.conversation, context)
        with self._exports.of_call(peer, context) as place:
            async for data in self._archive(held):
                _check_writer(held, peer)  # HOST-22: at every response
                unread = loop.call_later(limits.WRITE_TIMEOUT_S, place.close)
                try:
                    yield pb.ExportResponse(data=data)
                finally:
                    unread.cancel()

    async def _archive(self, held: Conversation) -> AsyncIterator[bytes]:
        """Yield the parts of an archive."""
        offer = await self._stored_offer(held)
        async with self._profiles.using(offer) as loaded:
            namespace = loaded.namespaces.stored(held)
        manifest = await asyncio.to_thread(self._pages.newest, held.id, namespace)
        if (size := archive_bytes(manifest)) > ARCHIVE_BYTES_MAX:
            raise ArchiveTooLarge(f"It has {size:,} bytes; hosts take {ARCHIVE_BYTES_MAX:,}.")
        payloads = (self._pages.read(held.id, piece) for piece in manifest.pieces)
        salt = os.urandom(ARCHIVE_SALT_BYTES)
        parts = encrypt_archive(self._ring_key, held.id, salt, manifest, payloads)
        while (data := await asyncio.to_thread(next, parts, None)) is not None:
            yield data
        log.info("exported", conversation=short(held.id), tokens=manifest.tokens)

    async def _stored_offer(self, held: Conversation) -> Offer:
        """Return the profile of the newest checkpoint; the default for another one, or none."""
        nodes = held.order.nodes
        for manifest in await self._profiles.manifests(held.id):
            return self._profiles.offers.of_seal(nodes.get(EntryId(manifest.seal)))
        return self._profiles.offers.default

    async def import_(
        self, requests: AsyncIterator[pb.ImportRequest], context: rpc.Context
    ) -> AsyncIterator[pb.ImportResponse]:
        """Store the checkpoint of an archive; nothing of a bad one is kept. Raises ArchiveError.

        It has to be of the profile of the conversation's last seal, or else of the default.
        """
        rpc.caller(self._callers.authenticator, context)  # before anything is parsed
        first = await next_message(requests, _SILENCE) or pb.ImportRequest()
        held, peer = await self._writable(conversation_of(first.data), context)
        with self._imports.of_call(peer, context) as place:
            yield pb.ImportResponse(conversation=held.id)
            with place.pop_all():  # what is being stored has it to its end, whoever hangs up
                manifest = await self._stored(held, peer, first.data, requests)
        log.info("imported", conversation=short(held.id), tokens=manifest.tokens)
        yield pb.ImportResponse(conversation=held.id, checkpoint=checkpoint_to_pb(manifest))

    async def _stored(
        self,
        held: Conversation,
        peer: PublicKey,
        first: bytes,
        requests: AsyncIterator[pb.ImportRequest],
    ) -> Manifest:
        """Receive an archive and store its checkpoint."""
        async with self._received(first, requests) as file:
            offer = self._profiles.offers.of_seal(last_seal(held))
            async with self._profiles.using(offer) as loaded:
                add = partial(self._add, held, file, loaded)
                _check_writer(held, peer)  # it may have come slowly
                return await to_the_end(loaded.thread.stored(add))

    @asynccontextmanager
    async def _received(
        self, first: bytes, requests: AsyncIterator[pb.ImportRequest]
    ) -> AsyncIterator[FileIO]:
        """Receive an archive into a file without a name. Raises CheckpointWriteFailed."""
        async with AsyncExitStack() as stack:
            try:
                file = stack.enter_context(unnamed_file(self._folder))
                await append_to_archive(file, self._pages, first)
                async with asyncio.timeout(IMPORT_TIMEOUT_S):
                    await self._write_rest(file, len(first), requests)
            except TimeoutError as error:
                raise ArchiveInvalid("It did not arrive in time.") from error
            except StoreReadOnly as error:  # the caller would take the words for its own folder's
                log.warning("archive not received", path=str(self._folder), detail=error.detail)
                raise CheckpointWriteFailed from error
            yield file

    async def _write_rest(
        self, file: FileIO, size: int, requests: AsyncIterator[pb.ImportRequest]
    ) -> None:
        """Write what arrives behind the first `size` bytes. Raises ArchiveTooLarge, LinkIdle."""
        while (request := await next_message(requests, _SILENCE)) is not None:
            size += len(request.data)
            if size > ARCHIVE_BYTES_MAX:
                raise ArchiveTooLarge(f"More than {ARCHIVE_BYTES_MAX} bytes.")
            await append_to_archive(file, self._pages, request.data)

    def _add(self, held: Conversation, file: FileIO, loaded: Loaded) -> Manifest:
        token_bytes = loaded.thread.engine.memory.bytes_per_token
        namespace = loaded.namespaces.stored(held)
        return store_archive(file, self._pages, self._ring_key, held.id, namespace, token_bytes)


def _check_writer(held: Conversation, peer: PublicKey) -> None:
    """Raise ConversationUnknown or NotAllowed unless a key may write requests now."""
    check_member(held, peer)
    if not held.log.membership.may_write(peer, Kind.REQUEST):
        raise NotAllowed("readers neither export nor import")


def checkpoint_to_pb(manifest: Manifest) -> pb.CheckpointInfo:
    """Return a checkpoint's description."""
    return pb.CheckpointInfo(
        seal=manifest.seal,
        generation=manifest.generation,
        tokens=manifest.tokens,
        size_bytes=manifest.nbytes,
    )
