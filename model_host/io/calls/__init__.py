"""The calls of HostService."""

from model_host.io.calls.archive_service import ArchiveService
from model_host.io.calls.callers import Callers
from model_host.io.calls.count_tokens import CountTokens
from model_host.io.calls.host_stats import HostStats
from model_host.io.calls.pages_call import PagesCall
from model_host.io.calls.render_call import RenderCall
from model_host.io.calls.replay_handler import ReplayHandler
from model_host.io.calls.service import Calls, HostService
from model_host.io.calls.stats_call import StatsCall
from model_host.io.calls.warm import Warm

__all__ = [
    "ArchiveService",
    "Callers",
    "Calls",
    "CountTokens",
    "HostService",
    "HostStats",
    "PagesCall",
    "RenderCall",
    "ReplayHandler",
    "StatsCall",
    "Warm",
]
