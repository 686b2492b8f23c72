"""The stream to one hub, reconnected whenever it ends (spec/04-link).

The core decides what is sent; replica/io/driver/driver.py performs its effects.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from replica.errors import AntiphonError
from replica.io.calls import Call, HubCalls, typed_end
from replica.io.driver.driver import ReplicaDriver
from replica.io.driver.link_outbox import LinkOutbox
from replica.io.process import Worker, get_logger
from replica.io.serving import error_of, rpc
from replica.link import Event, Fault, LinkClosed, decode_frame

log = get_logger()


class HubLink:
    """Keeps a replica linked to a hub, one stream after another."""

    def __init__(self, driver: ReplicaDriver, calls: HubCalls) -> None:
        """Link through `calls` from `start` to `stop`."""
        self.last_error: AntiphonError | None = None
        """The error that ended or prevented the last stream; None while the hub answers."""
        self.has_ended = False
        """Whether a bug has ended the link, so that no stream will come again."""
        self._driver = driver
        self._calls = calls
        self._worker: Worker | None = None

    def start(self, is_awaited: Callable[[], bool]) -> None:
        """Connect, and reconnect with growing pauses; `is_awaited` says whether somebody waits."""
        self._worker = Worker(self._run, is_awaited, "hub link")

    def go_on(self) -> None:
        """Begin again if all tasks were cancelled: somebody waits for the hub."""
        if self._worker is not None:
            self._worker.go_on()

    async def failed(self) -> None:
        """Raise the bug that ended the link; wait for ever if it goes on."""
        assert self._worker is not None, "start() comes first"
        await self._worker.ended()

    async def stop(self) -> None:
        """End the stream, and connect no more."""
        if self._worker is not None:
            await self._worker.stop()

    async def _run(self) -> None:
        core = self._driver.core
        while True:
            fault = None
            try:
                await self._run_stream()
            except AntiphonError as error:
                if self.last_error is None or self.last_error.reason != error.reason:
                    say = log.info if error.retryable else log.warning
                    say(
                        "hub link down",
                        reason=error.reason,
                        detail=error.detail,
                        next_step=error.next_step,
                    )
                self.last_error = error
                # Also if there never was a link, so that callers waiting for the hub are notified.
                fault = Fault.of(error)
            except Exception:
                log.exception("the hub link has ended")
                self.has_ended, self.last_error = True, rpc.bug()
                fault = Fault.of(self.last_error)
                raise
            finally:
                self._driver.do(core.disconnected(time.monotonic(), fault))
            await asyncio.sleep(core.reconnect_pause_s(random.random()))  # noqa: S311  # no secret

    async def _run_stream(self) -> None:
        driver = self._driver
        hub_key, ticket = await self._calls.authenticate()
        call: Call = self._calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
            metadata=((rpc.TICKET_METADATA, ticket),)
        )
        outbox = driver.outbox = LinkOutbox()
        writer = asyncio.create_task(outbox.write_all(call), name="link writer")
        reader = asyncio.create_task(self._read_all(call), name="link reader")
        overflow = asyncio.create_task(outbox.full(), name="link overflow")
        try:
            async with self._calls.renewed(), typed_end(call):
                driver.acks.hub = hub_key
                driver.do(driver.core.connected(hub_key, time.monotonic()))
                ends = (reader, overflow)
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    await ended
        finally:
            call.cancel()
            for task in (writer, reader, overflow):
                task.cancel()
            # Of a stream that ended, the reader has raised the error.
            await asyncio.gather(writer, reader, overflow, return_exceptions=True)

    async def _read_all(self, call: Call) -> None:
        core = self._driver.core
        async for data in call:
            message = decode_frame(data, "to_client")
            effects = core.receive(message, time.monotonic(), len(data))
            self._driver.do(effects)
            if core.has_ended:
                _raise_refusal(effects.deliver)
                return
            self.last_error = None


def _raise_refusal(events: Iterable[Event]) -> None:
    """Raise the error for which a link has ended, if the next one will end for it too.

    Else, as where the hub stops, the next try tells whether it is away.
    """
    for event in events:
        fault = event.fault if isinstance(event, LinkClosed) else None
        if fault is not None and not fault.retryable:
            raise error_of(fault)
