"""One answer, from its request to its GENERATION (spec/07-host §4)."""

from model_host.generation.calls import CallingText, Visible
from model_host.generation.draft_frames import DraftFrames
from model_host.generation.journal_records import (
    HEAD_BYTES,
    JOURNAL_BYTES_MAX,
    JournalHead,
    decode_journal,
    encode_token,
    token_bytes,
)
from model_host.generation.planning import (
    Branch,
    Plan,
    gather,
    gather_branch,
    listing_of,
    output_limit,
    plan,
    render_branch,
    rendering_of,
    standing,
)
from model_host.generation.prospect import gather_at, gather_current
from model_host.generation.runner import Run
from model_host.generation.stop import unfinished
from model_host.generation.text import VisibleText

__all__ = [
    "HEAD_BYTES",
    "JOURNAL_BYTES_MAX",
    "Branch",
    "CallingText",
    "DraftFrames",
    "JournalHead",
    "Plan",
    "Run",
    "Visible",
    "VisibleText",
    "decode_journal",
    "encode_token",
    "gather",
    "gather_at",
    "gather_branch",
    "gather_current",
    "listing_of",
    "output_limit",
    "plan",
    "render_branch",
    "rendering_of",
    "standing",
    "token_bytes",
    "unfinished",
]
