"""Conversations with language models, kept in sync between people, agents and hosts.

    with antiphon.open("~/agent", hub="127.0.0.1:7411") as me:
        trip = me.conversation("trip", system="Be brief.")
        print(trip.ask("Capital of France?").text)

`antiphon.aio` has `open`, `join`, `local` and what they return for use with async and await. The
errors that docstrings name are in both. `ConversationId`, `EntryId` and `PublicKey` are the types
of ids, and `FinishReason` says why an answer ended. Large modules are imported only when you use
a name that needs them. The generated stubs of the protocol are in `antiphon.v1`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon import aio
    from antiphon.library.errors import (
        CallOpen,
        EventsMissed,
        RunTooLong,
        RunUnfinished,
        ToolUnsuitable,
    )
    from antiphon.library.events import (
        Answer,
        Answered,
        Asked,
        Call,
        Discarded,
        Diverged,
        Draft,
        Event,
        Forked,
        HostChanged,
        MemberChanged,
        Refused,
        Repaired,
        Said,
        Sealed,
        SyncChanged,
        ToolCalled,
        ToolDone,
        ToolStarted,
        Withdrawn,
    )
    from antiphon.library.io.blocking import Branch, Conversation, Replica, Run, join
    from antiphon.library.io.blocking import local_replica as local
    from antiphon.library.io.blocking import open_replica as open  # noqa: A004
    from antiphon.library.raised import *  # noqa: F403  # for type checkers, as __getattr__ finds them
    from antiphon.library.tools import Tool, tool
    from replica.conversation import JoinPending
    from replica.errors import AntiphonError
    from replica.ids import ConversationId as ConversationId
    from replica.ids import EntryId as EntryId
    from replica.ids import PublicKey as PublicKey
    from replica.log import FinishReason as FinishReason
    from replica.log import Sampling, Usage
    from replica.refusals import NoHost

__all__ = [
    "Answer",
    "Answered",
    "AntiphonError",
    "Asked",
    "Branch",
    "Call",
    "CallOpen",
    "Conversation",
    "Discarded",
    "Diverged",
    "Draft",
    "Event",
    "EventsMissed",
    "Forked",
    "HostChanged",
    "JoinPending",
    "MemberChanged",
    "NoHost",
    "Refused",
    "Repaired",
    "Replica",
    "Run",
    "RunTooLong",
    "RunUnfinished",
    "Said",
    "Sampling",
    "Sealed",
    "SyncChanged",
    "Tool",
    "ToolCalled",
    "ToolDone",
    "ToolStarted",
    "ToolUnsuitable",
    "Usage",
    "Withdrawn",
    "aio",
    "join",
    "local",
    "open",
    "tool",
]

_TYPES = {
    "ConversationId": ("replica.ids", "ConversationId"),
    "EntryId": ("replica.ids", "EntryId"),
    "FinishReason": ("replica.log", "FinishReason"),
    "PublicKey": ("replica.ids", "PublicKey"),
}
"""Types of what methods take and return; like the errors they are found by name alone."""
_ELSEWHERE = {
    **_TYPES,
    "AntiphonError": ("replica.errors", "AntiphonError"),
    "JoinPending": ("replica.conversation", "JoinPending"),
    "NoHost": ("replica.refusals", "NoHost"),
    "Sampling": ("replica.log", "Sampling"),
    "Usage": ("replica.log", "Usage"),
    "Tool": ("antiphon.library.tools", "Tool"),
    "tool": ("antiphon.library.tools", "tool"),
    "open": ("antiphon.library.io.blocking", "open_replica"),
    "local": ("antiphon.library.io.blocking", "local_replica"),
    "CallOpen": ("antiphon.library.errors", "CallOpen"),
    "EventsMissed": ("antiphon.library.errors", "EventsMissed"),
    "RunTooLong": ("antiphon.library.errors", "RunTooLong"),
    "RunUnfinished": ("antiphon.library.errors", "RunUnfinished"),
    "ToolUnsuitable": ("antiphon.library.errors", "ToolUnsuitable"),
    **{name: ("antiphon.library.io.blocking", name) for name in
       ("Branch", "Conversation", "Replica", "Run", "join")},
}  # fmt: skip


if not TYPE_CHECKING:  # to a type checker any misspelt name would be one

    def __getattr__(name: str) -> Any:
        if name == "aio":
            return import_module("antiphon.aio")
        if name not in __all__ and name not in _TYPES:
            return _error(name)
        module, there = _ELSEWHERE.get(name, ("antiphon.library.events", name))
        return getattr(import_module(module), there)


def _error(name: str) -> Any:
    """Return an error that is none of the few names; modules and such begin with a small letter."""
    if name[:1].isupper():
        raised = import_module("antiphon.library.raised")
        if name in raised.__all__:
            return getattr(raised, name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
