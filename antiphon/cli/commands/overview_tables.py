"""Rows and records of `antiphon list` and `antiphon status`."""

import time
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from antiphon.cli.common import fork_records
from antiphon.cli.views import (
    NO_BRANCH,
    NO_LOSSES,
    BranchView,
    Losses,
    is_listed,
    losses_record,
    plain_table,
    title_of,
)
from replica.conversation import Conversation
from replica.ids import ConversationId, short
from replica.log import Kind
from replica.order import branch_ends

FLEXIBLE_CELLS_MIN = 8
FULL_CELLS = 80
"""Width from which a table has all of its columns."""
NARROW_CELLS = 60
"""Width below which it has only those that its reader came for."""
REFUSED = "refused"
_Row = dict[str, str | Text]
"""The cells of a row, by the names of their columns."""


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """The sync status of one conversation."""

    held: Conversation
    unsynced: int
    acked_ms: int | None
    state: str
    refusal: str = ""
    view: BranchView = NO_BRANCH
    """The branch that the next message continues."""
    queue: str = ""
    """Whose answer is under way there, and who is next."""
    refusal_words: str = ""
    """The refusal with its next step."""
    losses: Losses = NO_LOSSES
    """What the store lost of it."""
    is_refused: bool = False
    """Whether the hub gives this key nothing of it."""


def status_table(statuses: list[ConversationStatus], *, width: int) -> Table:
    """Return the table of `status`; a narrow one has fewer columns."""
    left_out = ["heads", "branches"] if width < FULL_CELLS else []
    left_out += ["entries", "last ack"] if width < NARROW_CELLS else []
    rows = []
    for status in statuses:
        log, ends = status.held.log, branch_ends(status.held.order)
        state = REFUSED if status.refusal else status.state
        color = {"synchronized": "green", "offline": "yellow"}.get(state, "red")
        row: _Row = {
            "id": short(status.held.id),
            "entries": str(len(log)),
            "heads": str(len(log.heads())),
            "branches": str(len(ends)),
            "unsynced": Text(str(status.unsynced), style="yellow" if status.unsynced else ""),
            "last ack": ago(status.acked_ms),
            "state": Text(state, style=color, no_wrap=True, overflow="ellipsis"),
        }
        rows.append(row)
    return _table(rows, left_out)


def list_table(
    statuses: list[ConversationStatus], current: ConversationId | None, *, width: int
) -> Table:
    """Return the table of `list`; a narrow one has fewer columns."""
    rows = []
    for status in statuses:
        held = status.held
        row: _Row = {
            "": "*" if held.id == current else "",
            "id": short(held.id),
            "title": Text(title_of(held), no_wrap=True, overflow="ellipsis"),
            "turns": str(_turns(held)),
            "members": str(len(held.log.membership.members())),
            "last entry": ago(last_ms(status)),
        }
        rows.append(row)
    return _table(rows, ["turns", "members"] if width < NARROW_CELLS else [])


def _table(rows: list[_Row], left_out: list[str]) -> Table:
    table = plain_table()
    names = [name for name in rows[0] if name not in left_out]
    for name in names:
        counts = name in ("entries", "heads", "branches", "unsynced", "turns", "members")
        # On a narrow terminal these columns are shortened.
        is_flexible = name in ("title", "state")
        table.add_column(
            name,
            justify="right" if counts else "left",
            no_wrap=not is_flexible,
            min_width=FLEXIBLE_CELLS_MIN if is_flexible else None,
        )
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table


def status_record(status: ConversationStatus) -> dict[str, Any]:
    """Return the JSON record of a conversation in `status`."""
    log = status.held.log
    return {
        "conversation": status.held.id.hex(),
        "entries": len(log),
        "digest": log.digest.hex(),
        "heads": [
            {
                "author": head.lane.author.hex(),
                "epoch": f"{head.lane.epoch:016x}",
                "track": head.lane.track,
                "seq": head.seq,
                "id": head.id.hex(),
            }
            for head in log.heads()
        ],
        "branches": len(branch_ends(status.held.order)),
        **losses_record(status.losses),
        "forks": fork_records(status.held),
        "waiting": [i.hex() for i in status.view.waiting],
        "unsynced": status.unsynced,
        "last_ack_ms": status.acked_ms,
        "state": status.state,
        "refusal": status.refusal or None,
        "refusal_words": status.refusal_words or None,
    }


def list_record(status: ConversationStatus, current: ConversationId | None) -> dict[str, Any]:
    """Return the JSON record of a conversation in `list`."""
    held = status.held
    membership = held.log.membership
    return {
        "conversation": held.id.hex(),
        "title": title_of(held),
        "turns": _turns(held),
        "entries": len(held.log),
        "members": [
            {"key": key.hex(), "roles": sorted(r.name.lower() for r in membership.roles[key])}
            for key in membership.members()
        ],
        "unsynced": status.unsynced,
        "last_ack_ms": status.acked_ms,
        "is_current": held.id == current,
        **losses_record(status.losses),
        "is_damaged": held.is_blocked,
    }


def _turns(held: Conversation) -> int:
    answers = (e for e in held.log.entries.values() if e.header.kind == Kind.GENERATION)
    return sum(is_listed(held, answer) for answer in answers)


def ago(unix_ms: int | None) -> str:
    """Return the time since `unix_ms` in the largest unit that fits."""
    if unix_ms is None:
        return "never"
    seconds = max(0.0, time.time() - unix_ms / 1000)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago" if seconds >= 1 else "now"


def last_ms(status: ConversationStatus) -> int | None:
    """Return when the last entry was written, None if there is none."""
    entries = status.held.log.entries.values()
    return max((entry.header.create_time_ms for entry in entries), default=None)
