"""Whose turn it is: requests, contexts to render and other work of several owners."""

from model_host.scheduling.owner import owner_of, shares_pages
from model_host.scheduling.payer_ring import PayerRing
from model_host.scheduling.render_turns import RenderTurns
from model_host.scheduling.schedule import (
    Begin,
    Bounds,
    Decision,
    GatherHeads,
    Refuse,
    RefuseExcess,
    Resume,
    Schedule,
    expired,
)

__all__ = [
    "Begin",
    "Bounds",
    "Decision",
    "GatherHeads",
    "PayerRing",
    "Refuse",
    "RefuseExcess",
    "RenderTurns",
    "Resume",
    "Schedule",
    "expired",
    "owner_of",
    "shares_pages",
]
