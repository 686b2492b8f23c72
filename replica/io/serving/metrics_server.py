"""The Prometheus endpoint of a daemon: GET /metrics over HTTP/1.1 (docs/operating.md).

It serves numbers and words of the protocol, and neither ids nor texts of conversations, to
anyone on this machine: it has no TLS, and refuses other addresses. The library
`prometheus_client` writes the format, and is needed only where the endpoint is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from replica.conversation import Address, address_of, endpoint
from replica.errors import AntiphonError, with_step
from replica.io.process import get_logger
from replica.io.serving.grpc_server import require_loopback, why_not
from replica.io.serving.tls_refusals import TlsRequired
from replica.measures import Histogram, Measure, MeasureKind
from replica.refusals import ArgumentInvalid

log = get_logger()

CONNECTIONS_MAX = 8
REQUEST_BYTES_MAX = 8192
ANSWER_TIMEOUT_S = 10.0
"""Seconds for a request and its answer together."""
READ_TIMEOUT_S = 5.0
"""Seconds for the measures, of which a part may not answer."""
_OTHER_PORT = (
    "End the process that has the port, or choose another, 0 for a free one: with `--metrics`,"
    " or with ANTIPHON_HUB_METRICS or ANTIPHON_HOST_METRICS where that is set."
)
_ON_LOOPBACK = (
    "Choose an address on loopback, such as 127.0.0.1:9101. Run Prometheus on this machine, or"
    " open a tunnel: metrics have neither TLS nor authentication."
)
_TEXT = "text/plain; charset=utf-8"
_ENDS = (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError)

Read = Callable[[], Awaitable[Sequence[Measure]]]
"""Returns the measures of this moment. Raises HostError while a part does not answer."""


class MetricsServer:
    """One endpoint with a registry of its own."""

    def __init__(self, read: Read) -> None:
        """Serve what `read` returns, and the CPU time and memory of the process.

        Raises ArgumentInvalid if `prometheus_client` is not installed.
        """
        try:
            import prometheus_client
        except ImportError as error:
            raise ArgumentInvalid("metrics: pip install 'antiphon[metrics]' first") from error
        self._read = read
        self.read_timeout_s = READ_TIMEOUT_S
        self._latest: Sequence[Measure] = ()
        self._format = prometheus_client.generate_latest
        self._content_type: str = prometheus_client.CONTENT_TYPE_LATEST
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)
        self.address = ""
        """The address it listens on, with the port chosen."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    @classmethod
    async def started(cls, address: str, read: Read) -> Self | None:
        """Return an endpoint at `[host:]port`, None where the address is empty.

        Raises ArgumentInvalid, TlsRequired.
        """
        if not address:
            return None
        made = cls(read)
        await made.start(address)
        log.info("metrics ready", address=made.address)
        return made

    async def start(self, address: str) -> None:
        """Listen on `[host:]port`, on loopback alone. Raises ArgumentInvalid, TlsRequired."""
        host, port = parse_address(address)
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise why_not(endpoint(address), _OTHER_PORT, name="metrics") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Refuse new connections and end the open ones."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    # --- HTTP -------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        if len(self._connections) >= CONNECTIONS_MAX:
            await _close(writer)
            return
        self._connections.add(task)
        try:
            # A client that sends too much, too slowly, or ends early gets no answer. asyncio of
            # Python 3.11 logs a traceback for a task of its own that ends cancelled.
            with suppress(*_ENDS, asyncio.CancelledError):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        finally:
            self._connections.discard(task)
            await _close(writer)

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _response("404 Not Found", _TEXT, b"/metrics\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", _TEXT, b"GET\n")
        try:
            body = await self.text()
        except AntiphonError as error:
            log.warning("metrics not read", reason=error.reason, detail=error.detail)
            return _unavailable(error.reason)
        except TimeoutError:
            log.warning("metrics not read", detail="a part of the process does not answer")
            return _unavailable(f"no measures within {self.read_timeout_s:g} s")
        answer = _response("200 OK", self._content_type, body)
        return answer if method == b"GET" else answer[: len(answer) - len(body)]

    # --- the registry -----------------------------------------------------------------

    async def text(self) -> bytes:
        """Return the measures of this moment in the text format. Raises TimeoutError."""
        async with asyncio.timeout(self.read_timeout_s):
            self._latest = await self._read()
        return self._format(self.registry)

    def collect(self) -> Iterator[Any]:
        """Yield the measures last read, as the registry asks for them."""
        return (_family(measure) for measure in self._latest)


def _family(measure: Measure) -> Any:
    """Return a measure as the library's metric family."""
    from prometheus_client import core

    labels = [measure.label] if measure.label else []
    kinds = {
        MeasureKind.COUNTER: core.CounterMetricFamily,
        MeasureKind.GAUGE: core.GaugeMetricFamily,
        MeasureKind.HISTOGRAM: core.HistogramMetricFamily,
    }
    family = kinds[measure.kind](measure.name, measure.help, labels=labels)
    for value, sample in measure.samples.items():
        named = [value] if measure.label else []
        if isinstance(sample, Histogram):
            family.add_metric(named, buckets=_buckets(sample), sum_value=sample.sum)
        else:
            family.add_metric(named, sample)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the counts of values up to each bound, as Prometheus has them."""
    from prometheus_client.utils import floatToGoString

    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    counts, found = 0, []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        counts += count
        found.append((bound, float(counts)))
    return found


def require_endpoint(address: str) -> None:
    """Refuse the address of an endpoint that would be refused later; empty, there is none.

    Raises ArgumentInvalid, TlsRequired.
    """
    if address:
        parse_address(address)


def parse_address(address: str) -> Address:
    """Return host and port of `[host:]port`; without a host it is loopback.

    Raises ArgumentInvalid, and TlsRequired for a host off loopback (TRUST-3).
    """
    whole = endpoint(address)
    found = address_of(whole, port_min=0)
    if found is None:
        raise ArgumentInvalid(f"metrics: '{address}' is not [host:]port")
    try:
        require_loopback(whole, name="metrics")
    except TlsRequired as error:
        raise with_step(error, _ON_LOOPBACK) from None
    return found


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # the peer may have closed it first
        await writer.wait_closed()


def _unavailable(why: str) -> bytes:
    return _response("503 Service Unavailable", _TEXT, f"{why}\n".encode())


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
