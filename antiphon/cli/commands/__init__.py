"""The commands, one module each, and what a few of them need.

The chat needs some of that, too; what any command may need is in `common`.
"""

from antiphon.cli.commands import (
    branches,
    cancel,
    clone,
    conform,
    doctor,
    fork,
    hub,
    invite,
    key,
    log,
    members,
    model,
    new,
    overview,
    pages,
    repair,
    replay,
    send,
    serve,
    top,
    transfer,
    up,
    verify,
    warm,
)
from antiphon.cli.commands.branches import (
    check_label,
    name_branch,
    show_branches,
    switch_to,
    title_record,
    unique_digits,
)
from antiphon.cli.commands.cancel import cancel_awaited, report_cancelled
from antiphon.cli.commands.fork import place_record
from antiphon.cli.commands.log import all_entries, print_entries
from antiphon.cli.commands.new import begin_default
from antiphon.cli.commands.overview import report_synced
from antiphon.cli.commands.send import ProfileOption, conflict_option, parse_conflict, say_awaited
from antiphon.cli.commands.up import fetch_model
from antiphon.cli.commands.whose_branch import branch_words

__all__ = [
    "ProfileOption",
    "all_entries",
    "begin_default",
    "branch_words",
    "branches",
    "cancel",
    "cancel_awaited",
    "check_label",
    "clone",
    "conflict_option",
    "conform",
    "doctor",
    "fetch_model",
    "fork",
    "hub",
    "invite",
    "key",
    "log",
    "members",
    "model",
    "name_branch",
    "new",
    "overview",
    "pages",
    "parse_conflict",
    "place_record",
    "print_entries",
    "repair",
    "replay",
    "report_cancelled",
    "report_synced",
    "say_awaited",
    "send",
    "serve",
    "show_branches",
    "switch_to",
    "title_record",
    "top",
    "transfer",
    "unique_digits",
    "up",
    "verify",
    "warm",
]
