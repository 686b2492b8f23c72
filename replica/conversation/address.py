"""Addresses of hubs, hosts and endpoints as people write them, host:port: read here alone.

Pure. gRPC takes a port modulo 65,536, so no address reaches it unread.
"""

from ipaddress import IPv6Address
from typing import NamedTuple

from replica.refusals import ArgumentInvalid

PORT_MAX = 65_535
_PORT_DIGITS_MAX = len(str(PORT_MAX))
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_LOOPBACK_DEFAULT = "127.0.0.1"
_ALL_INTERFACES = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared only


class Address(NamedTuple):
    """A host, without the brackets of IPv6, and a port."""

    host: str
    port: int

    @property
    def is_of_all_interfaces(self) -> bool:
        """Say whether it stands for all addresses of a machine."""
        return self.host in _ALL_INTERFACES


def address_of(text: str, *, port_min: int = 1) -> Address | None:
    """Return the address that a text states, None for a text that states none.

    `port_min` is 0 where a port is to be chosen.
    """
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS_MAX
    if not is_number or not port_min <= int(port) <= PORT_MAX:
        return None
    name = _name_in(host)
    return Address(name, int(port)) if name is not None else None


def _name_in(host: str) -> str | None:
    """Return a host without brackets; IPv6 has them, since else its last digits are a port."""
    if host.startswith("["):
        inner = host[1:].removesuffix("]")
        try:
            IPv6Address(inner)
        except ValueError:
            return None
        return inner if host.endswith("]") else None
    is_name = bool(host) and host.isprintable() and not set(host) & set(" /@:[]")
    return host if is_name else None


def is_address(text: str) -> bool:
    """Say whether a text is an address to connect to."""
    return address_of(text) is not None


def require_address(text: str, *, port_min: int = 1, name: str = "") -> Address:
    """Return the address that a text states; `name` is its setting. Raises ArgumentInvalid."""
    found = address_of(text, port_min=port_min)
    if found is None:
        what = f"{name}: " if name else ""
        raise ArgumentInvalid(
            f"{what}'{text}' is not host:port, with IPv6 in brackets and a port up to {PORT_MAX:,}"
        )
    return found


def addresses_in(text: str) -> tuple[str, ...]:
    """Return the addresses of a list that is separated by commas."""
    return tuple(one.strip() for one in text.split(","))


def endpoint(text: str) -> str:
    """Return `[host:]port` as host:port; without a host it is on loopback."""
    host, _, port = text.rpartition(":")
    return f"{host or _LOOPBACK_DEFAULT}:{port}"


def is_loopback(text: str) -> bool:
    """Say whether an address (host:port) is one of the loopback names that need no TLS."""
    return text.rpartition(":")[0].strip("[]") in _LOOPBACK
