"""Without TLS nothing leaves the machine (spec/09-trust §2)."""

import pytest

from replica.aio.serving import require_loopback
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_tls(address: str) -> None:
    require_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "example.com:1", ":1"])
def test_only_loopback_is_served_without_tls(address: str) -> None:
    with pytest.raises(ArgumentInvalid, match="no TLS"):
        require_loopback(address)
