"""Write the tables of chapters 10 and 11 from the code: `python -m spec.tables`.

tests/test_repo.py compares the chapters with the output of this module.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from replica import limits
from replica.errors import (
    AntiphonError,
    EntryRefused,
    HostError,
    RequestRefused,
    StoreError,
    Unavailable,
)
from replica.io.status import code_of

FOLDER = Path(__file__).parent

MEANINGS = {
    "VERSION": ("constant", "version of the protocol, in Hello and Welcome", "VERSION_UNSUPPORTED"),
    "DRAFT": ("constant", "draft of that version, in stores and bundles", "DRAFT_UNKNOWN"),
    "HEADER_BYTES_MAX": ("constant", "bytes of a header", "HEADER_TOO_LARGE"),
    "BODY_BYTES_MAX": ("constant", "bytes of a body", "BODY_TOO_LARGE"),
    "PARENTS_MAX": ("constant", "parents of an entry", "FIELD_INVALID"),
    "SEAL_ENTRIES_MAX": ("constant", "entries a seal lists", "BODY_MALFORMED"),
    "OWNERS_MAX": ("constant", "owners of a genesis", "BODY_MALFORMED"),
    "CUTS_MAX": ("constant", "cuts of a revocation", "BODY_MALFORMED"),
    "MEMBERSHIP_HEADS_MAX": ("constant", "membership heads in a body", "BODY_MALFORMED"),
    "PARTS_MAX": ("constant", "parts of a body; beyond, it is void", "BODY_MALFORMED"),
    "PART_NESTING_MAX": ("constant", "levels of tool results", "BODY_MALFORMED"),
    "STOP_STRINGS_MAX": ("constant", "stop strings of a request", "BODY_MALFORMED"),
    "DOCUMENT_UPDATE_BYTES_MAX": ("constant", "bytes of an update", "DOCUMENT_TOO_LARGE"),
    "CLOCK_MAX": ("constant", "greatest seq and lamport, 2^53 - 1", "FIELD_INVALID"),
    "FRAME_BYTES_MAX": ("quota", "bytes of a frame", "FRAME_TOO_LARGE"),
    "CREDIT_BYTES": ("quota", "bytes of counted frames ahead of the reader", "CREDIT_EXCEEDED"),
    "PENDING_LINK_BYTES_MAX": ("quota", "bytes of pending entries, per link", "PENDING_FULL"),
    "PENDING_BYTES_MAX": ("quota", "bytes of pending entries, all links of a hub", "PENDING_FULL"),
    "CONVERSATIONS_PER_LINK_MAX": ("quota", "conversations open on a link", "QUOTA_EXCEEDED"),
    "MEMBERSHIP_RESERVE": (
        "quota",
        "membership entries of owners beyond a full conversation",
        "QUOTA_EXCEEDED",
    ),
    "HOSTS_MAX": ("quota", "model hosts a Welcome names; keys a hub vouches for", ""),
    "HOST_PROFILES_MAX": ("quota", "profiles a model host names", "ARGUMENT_INVALID"),
    "HOST_TEXT_BYTES_MAX": (
        "quota",
        "bytes of a model host's address, and of a profile's name",
        "ARGUMENT_INVALID",
    ),
    "TICKET_LIFETIME_S": ("quota", "seconds for which a ticket is valid", "TICKET_INVALID"),
    "METADATA_BYTES_MAX": ("quota", "bytes of a fault; its lists are cut to fit", ""),
    "IDS_PER_FRAME": ("quota", "ids of one Ids frame", ""),
    "FETCH_IDS_MAX": ("quota", "ids of one Fetch", "ARGUMENT_INVALID"),
    "IDLE_TIMEOUT_S": ("quota", "seconds of silence before a link ends", "LINK_IDLE"),
    "HEARTBEAT_S": ("quota", "seconds between two heartbeats of a client", ""),
    "RESYNC_S": ("quota", "seconds without an ack before heads are compared again", ""),
    "DENIED_RECHECK_S": (
        "quota",
        "seconds before a client reopens a denied conversation",
        "",
    ),
    "STOP_STRING_BYTES_MAX": ("quota", "bytes of a stop string, 1 at least", "STOP_INVALID"),
    "STOP_TOKENS_MAX": ("quota", "stop tokens of a request", "STOP_INVALID"),
    "LOGIT_BIASES_MAX": ("quota", "tokens with a logit bias, in a request", "SAMPLING_INVALID"),
    "LOGPROBS_MAX": ("quota", "likeliest tokens recorded per output token", "SAMPLING_INVALID"),
    "DRAFT_BYTES_MAX": ("quota", "bytes of a running draft; the rest is dropped", ""),
    "BLOB_BYTES_MAX": ("quota", "bytes of a blob", "BLOB_TOO_LARGE"),
    "BLOBS_BYTES_MAX": ("quota", "bytes of all blobs of a conversation", "QUOTA_EXCEEDED"),
    "OUTBOX_BYTES_MAX": ("quota", "bytes queued for one stream", "SLOW_READER"),
    "WRITE_TIMEOUT_S": ("quota", "seconds in which a stream may accept no byte", "SLOW_READER"),
    "BLOB_CHUNK_BYTES": ("quota", "bytes of one piece of a blob", ""),
}
"""Per limit: its kind, the quantity it bounds, and the reason of the refusal beyond it."""


def errors() -> str:
    """Return the table of reasons, one row per class that defines one."""
    rows = ["| reason | cause | next step | retry | status |", "|---|---|---|---|---|"]
    for kind in classes():
        instance = kind.__new__(kind)
        cause = (kind.__doc__ or "").split("\n")[0].rstrip(".")
        retry = "yes" if kind.retryable else "no"
        status = code_of(instance).name
        rows.append(f"| {kind.reason} | {cause} | {kind.next_step} | {retry} | {status} |")
    return "\n".join(rows)


def classes() -> list[type[AntiphonError]]:
    """Return the error classes of the project, the first of each reason, without the CLI's."""
    for package in ("antiphon", "replica", "syncd", "model_host"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if "__main__" not in module.name and ".cli" not in module.name:
                importlib.import_module(module.name)
    by_reason: dict[str, type[AntiphonError]] = {}
    for kind in [AntiphonError, *_below(AntiphonError)]:
        if not kind.__module__.startswith(("antiphon.cli", "tests")):
            by_reason.setdefault(kind.reason, kind)
    return sorted(by_reason.values(), key=lambda k: (_family(k), k.reason))


def _family(kind: type[AntiphonError]) -> int:
    roots = (EntryRefused, RequestRefused, Unavailable, StoreError, HostError)
    return next((n for n, root in enumerate(roots) if issubclass(kind, root)), len(roots))


def _below(kind: type[AntiphonError]) -> Iterator[type[AntiphonError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def limits_table() -> str:
    """Return the table of limits, in the order of replica/limits.py."""
    rows = ["| limit | value | kind | bounds | reason |", "|---|---|---|---|---|"]
    for name, value in vars(limits).items():
        if name.isupper():
            kind, bounds, reason = MEANINGS[name]
            number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
            rows.append(f"| {name} | {number} | {kind} | {bounds} | {reason or '-'} |")
    return "\n".join(rows)


TABLES = {"errors": ("10-errors.md", errors), "limits": ("11-limits.md", limits_table)}


def chapter_with(name: str) -> tuple[Path, str]:
    """Return the path of a chapter, and its text with the table generated from the code."""
    file, table = TABLES[name]
    path = FOLDER / file
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    new, count = pattern.subn(lambda m: f"{m[1]}{table()}\n{m[2]}", path.read_text())
    assert count == 1, f"{file} has one table of {name}"
    return path, new


def main() -> None:
    """Write both tables."""
    for name in TABLES:
        path, new = chapter_with(name)
        path.write_text(new)


if __name__ == "__main__":
    main()
