"""`antiphon conform hub`: a black-box suite for any hub (spec/conform-hub.md)."""

from antiphon.conformance.io.hub import (
    access,
    authenticate,
    blob_cases,
    calls_without_link,
    covered,
    credit,
    deletion,
    drafting,
    durability,
    entries,
    greeting,
    hints,
    listings,
    mailboxes,
    network,
    opening,
    quotas,
    timing,
    watching,
)
from antiphon.conformance.io.hub.judge import judge_hub
from antiphon.conformance.io.hub.restart import by_command
from antiphon.conformance.io.hub.run import TABLE, HubRun, Scale

__all__ = [
    "TABLE",
    "HubRun",
    "Scale",
    "access",
    "authenticate",
    "blob_cases",
    "by_command",
    "calls_without_link",
    "covered",
    "credit",
    "deletion",
    "drafting",
    "durability",
    "entries",
    "greeting",
    "hints",
    "judge_hub",
    "listings",
    "mailboxes",
    "network",
    "opening",
    "quotas",
    "timing",
    "watching",
]
