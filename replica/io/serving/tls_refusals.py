"""Refusals of a connection off loopback (spec/09-trust §2)."""

from replica.conversation import is_loopback
from replica.errors import RequestRefused
from replica.ids import PublicKey
from replica.refusals import ArgumentInvalid


class TlsRequired(ArgumentInvalid):
    """The address is not on loopback, and this connection has no TLS."""

    reason = "TLS_REQUIRED"
    next_step = (
        "Open a tunnel, `ssh -L PORT:127.0.0.1:PORT MACHINE`, and use 127.0.0.1:PORT; or let a hub"
        " listen there, which has TLS."
    )


class HubKeyUnknown(RequestRefused):
    """Off loopback the hub's key must be known before the first contact."""

    reason = "HUB_KEY_UNKNOWN"
    next_step = (
        "Join with an invitation, which carries the key; or run `antiphon hub trust --key KEY` with"
        " the key that the hub prints when it starts. A host has it as `--hub-key`."
    )


def require_known_key(hub_key: PublicKey | None, address: str) -> None:
    """Refuse a hub off loopback whose key is neither given nor pinned. Raises HubKeyUnknown."""
    if hub_key is None and not is_loopback(address):
        raise HubKeyUnknown(f"no key is pinned for the hub at {address}")
