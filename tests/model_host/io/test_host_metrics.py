"""The Prometheus endpoint and the log of a real host."""

import pytest
from structlog.testing import capture_logs

from model_host.io.config import HostConfig
from model_host.io.server import start as start_host
from replica.io.serving.tls_refusals import TlsRequired
from tests.model_host.io.served_host import ServedHost
from tests.replica.io.serving.test_metrics_server import ask
from tests.support.talk import Talk, text_of

SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"


async def test_the_endpoint_of_a_host_has_numbers_and_no_ids(served: ServedHost):
    config = HostConfig(data_dir=served.folder / "host", hub=served.hub.address, metrics="0")
    async with start_host(config, served.engine) as host:
        talk = await Talk.begin(served.replica, host.key)
        request, _ = await talk.ask("Of Ferdinand the bull.", tokens=3)
        await talk.ask("And on.", tokens=3, profile=b"?" * 32)
        assert host.metrics is not None
        assert host.metrics.address.startswith("127.0.0.1:")
        status, body = await ask(host.metrics.address, SCRAPE)
        address = host.metrics.address
    assert status == "HTTP/1.1 200 OK"
    text = body.decode()
    assert 'antiphon_host_tokens_total{source="output"} 3.0' in text
    assert 'antiphon_host_requests_refused_total{reason="PROFILE_UNKNOWN"} 1.0' in text
    assert "antiphon_host_first_token_seconds_count 1.0" in text
    for secret in (talk.id, request, host.key, served.replica.public):
        assert secret.hex()[:12] not in text
    assert "Ferdinand" not in text
    with pytest.raises(OSError, match="Connect call failed"):
        await ask(address, SCRAPE)


async def test_without_the_flag_nothing_is_served(served: ServedHost):
    async with served.host() as host:
        assert host.metrics is None


@pytest.mark.parametrize("setting", ["listen", "metrics"])
async def test_an_address_off_loopback_is_refused_before_anything_is_made(
    served: ServedHost, setting: str
):
    there = {setting: "0.0.0.0:0"}
    config = HostConfig(data_dir=served.folder / "other", hub=served.hub.address, **there)
    with pytest.raises(TlsRequired, match=setting):
        async with start_host(config, served.engine):
            pass
    assert not (served.folder / "other").exists()


async def test_the_log_of_a_host_has_no_contents_and_no_secrets(served: ServedHost):
    with capture_logs() as logs:
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            _, answer = await talk.ask("Of Ferdinand the bull.", tokens=12, stop=("Ferdinand",))
            await talk.ask("Of Ferdinand.", tokens=3, stop=("Ferdinand " * 30,))
            await talk.ask("Of Ferdinand.", tokens=3, profile=b"Ferdinand".ljust(32))
    assert {"host ready", "answered", "checkpoint", "refused"} <= {line["event"] for line in logs}
    said = repr(logs)
    assert "Ferdinand" not in said
    assert text_of(answer.parts)[:20] not in said
    for secret in (served.folder / "host").glob("*.secret"):
        assert secret.read_bytes().hex()[:16] not in said
