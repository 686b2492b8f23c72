"""How the peer has ended a call that is still written to (spec/10-errors §2, DECISIONS D581).

Where a write fails because the peer has ended the call, gRPC replaces the peer's status by
INTERNAL, without details. The status is noted here as it comes.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from replica.errors import AntiphonError
from replica.io.serving import status
from replica.refusals import HubUnreachable

STATUS_WAIT_S = 1.0
"""Seconds in which a status comes whose call has ended for writes."""
_REPLACED = "Internal error from Core"
"""Details of the status that gRPC puts in place of the peer's."""
_ENDED = (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError)
"""What reads and writes of a call that has ended raise."""


@asynccontextmanager
async def typed_end(call: Any, wanted: str = "all was written") -> AsyncIterator[None]:
    """Raise the typed error of the peer where it ends a call that the block writes to.

    Raises HubUnreachable where it ends the call before `wanted` without one.
    """
    end = CallEnd(call)
    try:
        yield
    except _ENDED as error:
        if not call.done():
            raise
        raise await end.error(wanted) from error


class CallEnd:
    """The status of one call, as the peer gave it."""

    def __init__(self, call: Any) -> None:
        """Note the status of a call that has just begun."""
        self._status: grpc.aio.AioRpcError | None = None
        self._is_noted = asyncio.Event()
        call.add_done_callback(self._note)

    def _note(self, call: Any) -> None:
        """Note the status, unless it is gRPC's own. Called whenever there is another one."""
        code, details = _now(call.code()), _now(call.details())
        if code is grpc.StatusCode.INTERNAL and details == _REPLACED:
            return
        initial, trailing = _now(call.initial_metadata()), _now(call.trailing_metadata())
        self._status = grpc.aio.AioRpcError(code, initial, trailing, details, None)
        self._is_noted.set()

    async def error(self, wanted: str) -> AntiphonError:
        """Return the typed error that ended the call before `wanted`."""
        found = await self._found()
        if found is None:
            return HubUnreachable(f"the call broke off before {wanted}")
        if found.code() is grpc.StatusCode.OK:
            return HubUnreachable(f"the call ended before {wanted}")
        return status.from_rpc_error(found)

    async def of_peer(self, raised: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """Return the peer's status in place of one that a read or a write raised."""
        is_replaced = raised.code() is grpc.StatusCode.INTERNAL and raised.details() == _REPLACED
        return (await self._found() or raised) if is_replaced else raised

    async def _found(self) -> grpc.aio.AioRpcError | None:
        """Return the status once it is there; None if none comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_WAIT_S):
                await self._is_noted.wait()
        return self._status


def _now(answer: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine of a call that has ended returns: it does not wait."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    answer.close()
    raise AssertionError("the call has a status")
