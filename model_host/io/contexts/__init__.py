"""Contexts: rendered, prepared for a run, and where their tokens are kept."""

from model_host.io.contexts.hub_checkpoints import HubCheckpoints
from model_host.io.contexts.hub_tier import HubTier
from model_host.io.contexts.located import locate
from model_host.io.contexts.prepared import NoText, Prepared, new_run_number, prepared_run, text_of
from model_host.io.contexts.rendering import Rendering

__all__ = [
    "HubCheckpoints",
    "HubTier",
    "NoText",
    "Prepared",
    "Rendering",
    "locate",
    "new_run_number",
    "prepared_run",
    "text_of",
]
