"""The server of the daemons: loopback without TLS (spec/09-trust §2)."""

import grpc
import pytest

from replica.io.grpc_server import listen, require_loopback
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_tls(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "example.com:1", ":1", "127.0.0.1.example.com:1"],
)
def test_only_loopback_is_served_without_tls(address: str) -> None:
    refused = refusal(address)
    assert refused is not None
    assert "no TLS" in refused.detail


async def test_a_port_of_0_becomes_the_port_chosen() -> None:
    host, _, port = listen(grpc.aio.server(), "127.0.0.1:0").rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


def refusal(address: str) -> ArgumentInvalid | None:
    try:
        require_loopback(address)
    except ArgumentInvalid as error:
        return error
    return None
