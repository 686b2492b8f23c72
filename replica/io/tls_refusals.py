"""Refusals of a connection off loopback (spec/09-trust §2)."""

from replica.errors import RequestRefused
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
