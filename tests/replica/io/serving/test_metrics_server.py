"""The Prometheus endpoint: what it answers, and whom it keeps waiting."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replica.errors import HostError
from replica.io.serving.metrics_server import CONNECTIONS_MAX, MetricsServer, parse_address
from replica.io.serving.tls_refusals import TlsRequired
from replica.measures import Histogram, Measure, Measures
from replica.refusals import ArgumentInvalid


async def read() -> list[Measure]:
    made = Measures("antiphon_test")
    histogram = Histogram((0.5, 1.0))
    for value in (0.4, 0.5, 0.7, 3.0):
        histogram.observe(value)
    made.counter("faults", "Refusals.", {"QUOTA_EXCEEDED": 3, "OTHER": 0}, "reason")
    made.gauge("links", "Links.", 2)
    made.histogram("append_seconds", "Times.", histogram)
    return made.found


@pytest.fixture
async def server() -> AsyncIterator[MetricsServer]:
    made = MetricsServer(read)
    await made.start("0")
    yield made
    await made.stop()


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def ask(address: str, request: bytes) -> tuple[str, bytes]:
    """Return the status line and the body of an answer."""
    host, port = parse_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    try:
        answer = await reader.read()
    except ConnectionError:  # the server has closed with bytes unread
        answer = b""
    await close(writer)
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


async def test_a_scrape_has_every_measure_and_the_process(server: MetricsServer) -> None:
    status, body = await ask(server.address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    families = {f.name: f for f in text_string_to_metric_families(body.decode())}
    faults = {s.labels["reason"]: s.value for s in families["antiphon_test_faults"].samples}
    assert faults == {"QUOTA_EXCEEDED": 3.0, "OTHER": 0.0}
    times = {
        s.name.removeprefix("antiphon_test_append_seconds") + s.labels.get("le", ""): s.value
        for s in families["antiphon_test_append_seconds"].samples
    }
    assert times == {
        "_bucket0.5": 2.0, "_bucket1.0": 3.0, "_bucket+Inf": 4.0, "_count": 4.0, "_sum": 4.6,
    }  # fmt: skip
    assert families["antiphon_test_links"].samples[0].value == 2.0
    assert "process_resident_memory_bytes" in families


async def test_other_paths_methods_and_requests_get_no_metrics(server: MetricsServer) -> None:
    assert (await ask(server.address, b"GET / HTTP/1.1\r\n\r\n"))[0].endswith("404 Not Found")
    assert "405" in (await ask(server.address, b"POST /metrics HTTP/1.1\r\n\r\n"))[0]
    status, body = await ask(server.address, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 200 OK", b"")
    assert await ask(server.address, b"x" * 20_000) == ("", b"")


async def test_two_endpoints_of_one_process_share_nothing(server: MetricsServer) -> None:
    async def nothing() -> list[Measure]:
        return []

    other = MetricsServer(nothing)
    assert b"antiphon_test_links" in await server.text()
    assert b"antiphon_test_links" not in await other.text()


async def test_idle_connections_are_bounded_and_ended_at_the_stop(
    server: MetricsServer, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = parse_address(server.address)
    idle = [await asyncio.open_connection(host, port) for _ in range(CONNECTIONS_MAX)]
    # All places are taken once the first of them is refused an answer.
    assert await ask(server.address, b"GET /metrics HTTP/1.1\r\n\r\n") == ("", b"")
    await server.stop()
    for reader, writer in idle:
        assert await reader.read() == b""
        await close(writer)
    assert caplog.text == ""


async def test_a_host_whose_engine_has_stopped_is_unavailable() -> None:
    async def fail() -> list[Measure]:
        raise HostError("The engine has stopped.")

    server = MetricsServer(fail)
    await server.start("127.0.0.1:0")
    status, body = await ask(server.address, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert status.endswith("503 Service Unavailable")
    assert body.decode().strip() == HostError.reason
    await server.stop()


async def test_a_host_whose_engine_does_not_answer_is_unavailable() -> None:
    async def hang() -> list[Measure]:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    server = MetricsServer(hang)
    server.read_timeout_s = 0.1
    await server.start("127.0.0.1:0")
    status, body = await ask(server.address, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert status.endswith("503 Service Unavailable")
    assert body.decode() == "no measures within 0.1 s\n"
    await server.stop()


@pytest.mark.parametrize(
    ("given", "address"),
    [("9101", ("127.0.0.1", 9101)), (":1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2)),
     ("localhost:3", ("localhost", 3))],
)  # fmt: skip
def test_an_address_without_a_host_is_loopback(given: str, address: tuple[str, int]) -> None:
    assert parse_address(given) == address


@pytest.mark.parametrize("given", ["x", "host:", "1:65536", "1:-1", "1:²"])
async def test_an_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(ArgumentInvalid, match="metrics"):
        await MetricsServer(read).start(given)


@pytest.mark.parametrize("given", ["0.0.0.0:0", "[::]:0", "192.0.2.7:9101", "example.com:1"])
async def test_an_address_off_loopback_is_refused(given: str) -> None:
    with pytest.raises(TlsRequired, match=r"metrics: .* is not on loopback") as refused:
        await MetricsServer.started(given, read)
    assert "tunnel" in refused.value.next_step


async def test_an_address_in_use_is_refused(server: MetricsServer) -> None:
    with pytest.raises(ArgumentInvalid, match=r"metrics: .*the port is in use") as refused:
        await MetricsServer(read).start(server.address)
    assert "--metrics" in refused.value.next_step


async def test_nothing_is_served_without_an_address() -> None:
    assert await MetricsServer.started("", read) is None


def test_without_the_library_the_operator_gets_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ArgumentInvalid, match=r"pip install 'antiphon\[metrics\]'"):
        MetricsServer(read)
