"""Cases for clients, on a hub that misbehaves in permitted and in forbidden ways."""

from antiphon.conformance.io.client import (
    answers,
    documents,
    entries,
    hosts_and_blobs,
    links,
    writing,
)
from antiphon.conformance.io.client.processes import run_clients
from antiphon.conformance.io.client.session import CASES, Clients

__all__ = [
    "CASES",
    "Clients",
    "answers",
    "documents",
    "entries",
    "hosts_and_blobs",
    "links",
    "run_clients",
    "writing",
]
