"""Addresses as text, host:port."""

import pytest

from replica.conversation.address import (
    Address,
    address_of,
    is_address,
    is_loopback,
    require_address,
)
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:7411", ("127.0.0.1", 7411)),
        ("[::1]:1", ("::1", 1)),
        ("[fe80::2%eth0]:1", ("fe80::2%eth0", 1)),
        ("hub.example.com:65535", ("hub.example.com", 65_535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, found: tuple[str, int]) -> None:
    assert address_of(text) == Address(*found)
    assert require_address(text) == found
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "7411", ":7411", "host:", "host:port", "host:-1", "host:²", "host:0", "host:65536",
        "host:99999", "host:000080", "host:00008019999", "a b:1", "user@host:1", "http://host:1",
        "unix:/tmp/socket",
        # Resolvers and gRPC read these in different ways, or not at all.
        "fd00::2:7411", "::1:7411", "[fd00::2:7411", "fd00::2]:7411", "[[::1]]:1", "[host]:1",
        "[127.0.0.1]:1", "[]:1", "a:b:1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(ArgumentInvalid, match="is not host:port"):
        require_address(text, name="hub")


def test_a_port_of_0_is_one_to_be_chosen() -> None:
    assert require_address("127.0.0.1:0", port_min=0).port == 0
    assert address_of("127.0.0.1:65536", port_min=0) is None


def test_names_of_loopback_and_of_all_interfaces_are_told_apart() -> None:
    assert [is_loopback(f"{host}:1") for host in ("localhost", "[::1]", "127.0.0.1")] == [True] * 3
    assert not is_loopback("127.0.0.1.example.com:1")
    both = [require_address(text).is_of_all_interfaces for text in ("0.0.0.0:1", "[::]:1")]
    assert both == [True, True]
    assert not require_address("127.0.0.1:1").is_of_all_interfaces
