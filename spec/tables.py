"""Write tables of the chapters from the code and the protocol files: `python -m spec.tables`.

tests/test_repo.py compares the chapters with the output of this module.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from antiphon.conformance.forms import FORMS
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
from replica.log.kinds import KINDS, Kind
from spec.vectors.make import manifest
from syncd.pushed import Warned

FOLDER = Path(__file__).parent

MEANINGS = {
    "VERSION": ("constant", "version of the protocol, in Hello and Welcome", "VERSION_UNSUPPORTED"),
    "DRAFT": ("constant", "draft of that version, in stores and bundles", "DRAFT_UNKNOWN"),
    "HEADER_BYTES_MAX": ("constant", "bytes of a header", "HEADER_TOO_LARGE"),
    "BODY_BYTES_MAX": ("constant", "bytes of a body", "BODY_TOO_LARGE"),
    "BODY_FIELDS_MAX": (
        "constant",
        "fields of a body, those inside its messages and unknown ones counted",
        "BODY_MALFORMED",
    ),
    "PARENTS_MAX": ("constant", "parents of an entry", "FIELD_INVALID"),
    "SEAL_ENTRIES_MAX": ("constant", "entries a seal lists", "BODY_MALFORMED"),
    "OWNERS_MAX": ("constant", "owners of a genesis", "BODY_MALFORMED"),
    "CUTS_MAX": ("constant", "cuts of a revocation", "BODY_MALFORMED"),
    "MEMBERSHIP_HEADS_MAX": ("constant", "membership heads in a body", "BODY_MALFORMED"),
    "PARTS_MAX": (
        "constant",
        "parts of a body, without those of its tool results; beyond, it is void",
        "BODY_MALFORMED",
    ),
    "LABEL_BYTES_MAX": ("constant", "bytes of a label; beyond, its body is void", "BODY_MALFORMED"),
    "STOP_STRINGS_MAX": ("constant", "stop strings of a request", "BODY_MALFORMED"),
    "GRAMMAR_BYTES_MAX": (
        "constant",
        "bytes of the response format of a request, 1 at least",
        "BODY_MALFORMED",
    ),
    "TOOL_NAME_BYTES_MAX": ("constant", "bytes of the tool a request names", "BODY_MALFORMED"),
    "DOCUMENT_UPDATE_BYTES_MAX": ("constant", "bytes of an update", "DOCUMENT_TOO_LARGE"),
    "CLOCK_MAX": ("constant", "greatest seq and lamport, 2^53 - 1", "FIELD_INVALID"),
    "FRAME_BYTES_MAX": ("quota", "bytes of a frame", "FRAME_TOO_LARGE"),
    "CREDIT_BYTES": ("quota", "bytes of counted frames ahead of the reader", "CREDIT_EXCEEDED"),
    "PENDING_LINK_BYTES_MAX": ("quota", "bytes of pending entries, per link", "PENDING_FULL"),
    "PENDING_ENTRY_BYTES_MIN": (
        "quota",
        "bytes that a pending entry counts as, at least",
        "PENDING_FULL",
    ),
    "PENDING_BYTES_MAX": ("quota", "bytes of pending entries, all links of a hub", "PENDING_FULL"),
    "CONVERSATIONS_PER_LINK_MAX": ("quota", "conversations open on a link", "QUOTA_EXCEEDED"),
    "ENTRIES_MAX": ("quota", "entries of a conversation", "QUOTA_EXCEEDED"),
    "LINKS_PER_KEY_MAX": ("quota", "links and Watches of a key", "QUOTA_EXCEEDED"),
    "CONVERSATIONS_IN_MEMORY_MAX": (
        "quota",
        "conversations in memory; unused ones are evicted",
        "",
    ),
    "MEMBERSHIP_RESERVE": (
        "quota",
        "membership entries of owners beyond a full conversation",
        "QUOTA_EXCEEDED",
    ),
    "LANES_PER_KEY_MAX": ("quota", "lanes of a key in a conversation", "QUOTA_EXCEEDED"),
    "OWN_HEADS_MAX": ("quota", "own heads that a Hint names", ""),
    "READER_ENTRIES_MAX": (
        "quota",
        "entries of a key with the role of reader alone, in a conversation",
        "QUOTA_EXCEEDED",
    ),
    "SEALS_PER_REQUEST_MAX": ("quota", "seals of one request by one host", "QUOTA_EXCEEDED"),
    "REVOCATIONS_PER_KEY_MAX": ("quota", "revocations of one key by one key", "QUOTA_EXCEEDED"),
    "HOSTS_MAX": ("quota", "model hosts a Welcome names; keys a hub vouches for", ""),
    "HOST_PROFILES_MAX": ("quota", "profiles a model host names", "ARGUMENT_INVALID"),
    "HOST_TEXT_BYTES_MAX": (
        "quota",
        "bytes of a model host's address, and of a profile's name and numerics",
        "ARGUMENT_INVALID",
    ),
    "TICKET_LIFETIME_S": ("quota", "seconds for which a ticket is valid", "TICKET_INVALID"),
    "INVITATION_LIFETIME_S": (
        "constant",
        "seconds for which an invitation is valid",
        "ARGUMENT_INVALID",
    ),
    "MAILBOXES_MAX": ("quota", "mailboxes of a hub", "QUOTA_EXCEEDED"),
    "MAILBOXES_PER_KEY_MAX": ("quota", "mailboxes of one key", "QUOTA_EXCEEDED"),
    "DEPOSITS_MAX": ("quota", "proofs in a mailbox; beyond, they are dropped", ""),
    "METADATA_BYTES_MAX": ("quota", "bytes of a fault; its lists are cut to fit", ""),
    "IDS_PER_FRAME": ("quota", "ids of one Ids frame", ""),
    "FETCH_IDS_MAX": ("quota", "ids of one Fetch", "ARGUMENT_INVALID"),
    "FETCH_RANGES_MAX": ("quota", "lane ranges of one Fetch", "FRAME_TOO_LARGE"),
    "ENTRIES_PER_FRAME_MAX": ("quota", "entries of a frame or a Push", "FRAME_TOO_LARGE"),
    "HEADS_PER_FRAME_MAX": ("quota", "lane heads of a frame or a cursor", "FRAME_TOO_LARGE"),
    "LISTING_ITEMS_MAX": ("quota", "conversations of one Listing", ""),
    "LISTED_MAX": ("quota", "listed conversations that a client remembers", ""),
    "ITEMS_PER_FRAME_MAX": (
        "quota",
        "items of any other repeated field of a frame or call, packed numbers by their bytes, and "
        "all its other fields together",
        "FRAME_TOO_LARGE",
    ),
    "REQUEST_BYTES_MAX": (
        "quota",
        "bytes of a request other than of Push, Watch, Fetch, Write, CountTokens and Import",
        "FRAME_TOO_LARGE",
    ),
    "REQUEST_TIMEOUT_S": ("quota", "seconds in which the request of a call comes", "LINK_IDLE"),
    "KEYLESS_CALLS_MAX": (
        "quota",
        "calls without a key that wait for their request; a newer one ends the oldest",
        "RATE_LIMITED",
    ),
    "STRANGER_CALLS_MAX": (
        "quota",
        "refused calls and calls without a key that wait for their turn at a hub",
        "RATE_LIMITED",
    ),
    "IDLE_TIMEOUT_S": (
        "quota",
        "seconds of silence before a link ends, or a connection without a call",
        "LINK_IDLE",
    ),
    "HEARTBEAT_S": ("quota", "seconds between two heartbeats of a client", ""),
    "RESYNC_S": ("quota", "seconds without an ack before heads are compared again", ""),
    "DENIED_RECHECK_S": (
        "quota",
        "seconds before a client reopens a denied conversation",
        "",
    ),
    "STOP_STRING_BYTES_MAX": ("quota", "bytes of a stop string", "STOP_INVALID"),
    "STOP_TOKENS_MAX": ("quota", "stop tokens of a request", "STOP_INVALID"),
    "LOGIT_BIASES_MAX": ("quota", "tokens with a logit bias, in a request", "SAMPLING_INVALID"),
    "LOGPROBS_MAX": ("quota", "likeliest tokens recorded per output token", "SAMPLING_INVALID"),
    "DRAFT_BYTES_MAX": ("quota", "bytes of memory of a running draft; the rest is dropped", ""),
    "RUNNING_DRAFTS_BYTES_MAX": (
        "quota",
        "bytes of memory of all running drafts of a conversation; the rest is dropped",
        "",
    ),
    "STREAMS_MAX": ("quota", "links and Watches of a hub; also its transfers", "QUOTA_EXCEEDED"),
    "TRANSFERS_PER_KEY_MAX": (
        "quota",
        "Fetches and transfers of blobs of a key at a time",
        "QUOTA_EXCEEDED",
    ),
    "CONNECTION_CALLS_MAX": (
        "quota",
        "calls of a connection at a time; more wait at the caller",
        "",
    ),
    "CALLS_PER_KEY_MAX": ("quota", "unary calls of a key that run at a time", "RATE_LIMITED"),
    "CALLS_MAX": (
        "quota",
        "unary calls of all keys that run at a time; of those beyond half, one per key",
        "RATE_LIMITED",
    ),
    "BLOB_BYTES_MAX": ("quota", "bytes of a blob", "BLOB_TOO_LARGE"),
    "BLOBS_BYTES_MAX": ("quota", "bytes of all blobs of a conversation", "QUOTA_EXCEEDED"),
    "EXPIRING_BLOBS_BYTES_MAX": (
        "quota",
        "bytes of the blobs of a conversation that expire",
        "QUOTA_EXCEEDED",
    ),
    "OUTBOX_BYTES_MAX": ("quota", "bytes queued for one stream", "SLOW_READER"),
    "MEMORY_LINK_BYTES_MAX": (
        "quota",
        "bytes of memory of one link at a hub, and of the drafts of a conversation",
        "QUOTA_EXCEEDED",
    ),
    "MEMORY_KEY_BYTES_MAX": (
        "quota",
        "bytes of memory of all links of a key, and of the drafts in its conversations",
        "QUOTA_EXCEEDED",
    ),
    "MEMORY_BYTES_MAX": (
        "quota",
        "bytes of memory of all links and drafts of a hub; the heaviest go",
        "QUOTA_EXCEEDED",
    ),
    "LOGS_BYTES_MAX": ("quota", "bytes of memory of conversations; unused ones are evicted", ""),
    "CONVERSATIONS_PER_CREATOR_MAX": (
        "quota",
        "conversations that a key brings to a hub",
        "QUOTA_EXCEEDED",
    ),
    "CONVERSATION_BYTES_MAX": (
        "quota",
        "bytes of the entries of a conversation, beside membership entries of owners",
        "QUOTA_EXCEEDED",
    ),
    "DISK_CREATOR_BYTES_MAX": (
        "quota",
        "bytes on disk of the conversations that a key created, with their blobs",
        "QUOTA_EXCEEDED",
    ),
    "BLOB_FILES_MAX": ("quota", "blobs and uploads of a conversation", "QUOTA_EXCEEDED"),
    "WRITE_TIMEOUT_S": ("quota", "seconds in which a stream may accept no byte", "SLOW_READER"),
    "ARCHIVE_BYTES_MAX": ("quota", "bytes of a checkpoint archive", "ARCHIVE_TOO_LARGE"),
    "CHECKPOINT_TOKENS_MAX": ("constant", "tokens of a checkpoint", "BODY_MALFORMED"),
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
        status = "warning" if isinstance(instance, Warned) else code_of(instance).name
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


FIELD = re.compile(r"((?:^  //.*\n)+)^  (?:(repeated) )?(\w+) (\w+) = (\d+);", re.MULTILINE)

BODIES = {
    Kind.GENESIS: "1 to 16 different owners, the author first; what clients propose for requests, "
    "within the bounds of a REQUEST; consent to sharing of pages (08 §6)",
    Kind.MEMBER: "a grant, or a revocation with at most 1,024 cuts",
    Kind.MESSAGE: "at most 256 parts, a label of at most 64 bytes",
    Kind.TOOLS: "definitions in order",
    Kind.REQUEST: "at most 16 stop strings, none empty; a response format of 1 byte to 64 KiB, "
    "a tool name of at most 256 bytes; at most 64 membership heads, ascending",
    Kind.SEAL: "03 §3; 1 to 8,192 entries with as many `tokens_per_entry`; at most 64 membership "
    "heads, ascending",
    Kind.GENERATION: "07; at most 256 parts; `logprobs` for no token or for each, with as many "
    "`top_ids` as `top_logprobs`",
    Kind.CANCEL: "its parent is the request",
    Kind.CHECKPOINT: "an archive (08 §9) of 1 to 2^24 tokens and 1 to 2^30 bytes; its parent is "
    "the GENERATION",
    Kind.DOCUMENT: "one Yjs update (06)",
    Kind.JOIN: "empty: it gathers more than 64 heads",
}
"""Per kind: the contents and bounds of its body."""


def fields(message: str) -> str:
    """Return the table of the fields of a message, from the comments in log.proto."""
    proto = (FOLDER.parent / "proto" / "antiphon" / "v1" / "log.proto").read_text()
    block = proto[proto.index(f"message {message} {{") :].partition("\n}\n")[0]
    rows = ["| # | field | type | rule |", "|---|---|---|---|"]
    for comment, repeated, type_, name, number in FIELD.findall(block):
        rule = " ".join(line.strip(" /") for line in comment.splitlines())
        kind = f"{repeated} {type_}".strip()
        rows.append(f"| {number} | {name} | {kind} | {rule} |")
    return "\n".join(rows)


def kinds_table() -> str:
    """Return the table of kinds, from the one that the code reads."""
    rows = ["| kind | track | author's role | body |", "|---|---|---|---|"]
    for kind, body in BODIES.items():
        rules = KINDS[kind]
        mark = " *c*" if rules.is_control else ""
        track = rules.track.name.lower() if rules.track is not None else "any"
        roles = ", ".join(role.name.lower() for role in sorted(rules.roles))
        roles = "\N{EN DASH}" if kind is Kind.GENESIS else roles
        rows.append(f"| {kind} {kind.name}{mark} | {track} | {roles} | {body} |")
    return "\n".join(rows)


def namespace_table() -> str:
    """Return the table of the namespace's fields, from the docstrings of its class."""
    tree = ast.parse((FOLDER.parent / "model_host" / "kv" / "namespace.py").read_text())
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef))
    rows = ["| field | value |", "|---|---|"]
    for field, comment in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(comment, ast.Expr):
            text = ast.literal_eval(comment.value).rstrip(".")
            rows.append(f"| `{ast.unparse(field.target)}` | {text} |")
    return "\n".join(rows)


def manifest_table() -> str:
    """Return the table of the rules of a manifest, from the maker of its vectors."""
    rows = [f"| {rule} | {text} |" for rule, text in manifest.RULES.items()]
    return "\n".join(["| rule | |", "|---|---|", *rows])


def questions_table() -> str:
    """Return the table of the questions that the conformance kit asks a core."""
    rows = ["| ask | given | answer |", "|---|---|---|"]
    rows += [f"| `{ask}` | {form.given} | {form.answer} |" for ask, form in FORMS.items()]
    return "\n".join(rows)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "header": ("02-entry.md", partial(fields, "Header")),
    "kinds": ("02-entry.md", kinds_table),
    "sampling": ("07-host.md", partial(fields, "Sampling")),
    "manifest": ("08-checkpoint.md", manifest_table),
    "namespace": ("08-checkpoint.md", namespace_table),
    "errors": ("10-errors.md", errors),
    "limits": ("11-limits.md", limits_table),
    "questions": ("conform-core.md", questions_table),
}


def chapter_with(name: str) -> tuple[Path, str]:
    """Return the path of a chapter, and its text with the table generated from the code."""
    file, table = TABLES[name]
    path = FOLDER / file
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    new, count = pattern.subn(lambda m: f"{m[1]}{table()}\n{m[2]}", path.read_text())
    assert count == 1, f"{file} has one table of {name}"
    return path, new


def main() -> None:
    """Write all tables."""
    for name in TABLES:
        path, new = chapter_with(name)
        path.write_text(new)


if __name__ == "__main__":
    main()
