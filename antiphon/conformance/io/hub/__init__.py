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
from antiphon.conformance.io.hub.run import TABLE, HubRun, Restart, Scale

THEMES = (
    authenticate,
    greeting,
    credit,
    opening,
    entries,
    covered,
    access,
    listings,
    calls_without_link,
    watching,
    drafting,
    blob_cases,
    deletion,
    mailboxes,
    quotas,
    network,
    timing,
    durability,
)
"""The modules of cases; importing one adds its cases to the table."""

__all__ = ["TABLE", "THEMES", "HubRun", "Restart", "Scale", "by_command", "judge_hub"]
