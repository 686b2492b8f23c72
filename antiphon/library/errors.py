"""Errors of the library itself, in addition to those of the replica.

AntiphonError
├── RequestRefused
│   ├── BranchUnbegun     a message on a branch that has no turn of its own
│   ├── EventsMissed      an iterator over events that was read too slowly
│   ├── LoopUnsuitable    a call in an event loop other than the replica's, or a blocking call
│   │                     inside it
│   ├── ProcessForked     a replica with a hub, in a process forked from one that was linked
│   ├── RunUnfinished     the answer of a run that has not ended
│   ├── RunTooLong        a run with more tool calls than it may make
│   ├── ToolUnsuitable    a function that cannot be offered as a tool
├── StoreError
│   └── ReplicaClosed     a call after the replica was closed, or interrupted by its closing
└── HostError
    └── CallOpen          a call has no result, and no run known here is working on it
"""

from typing import Any

from replica.errors import HostError, ReplicaClosed, RequestRefused, with_step
from replica.ids import PublicKey

__all__ = [
    "BranchUnbegun",
    "CallOpen",
    "EventsMissed",
    "LoopUnsuitable",
    "ProcessForked",
    "ReplicaClosed",
    "RunTooLong",
    "RunUnfinished",
    "ToolUnsuitable",
]


class BranchUnbegun(RequestRefused):
    """Words were to be said on a branch on which nothing was asked yet."""

    reason = "BRANCH_UNBEGUN"
    next_step = (
        "Ask there first: `ask` and `run` take these words, also as one of several parts. What is"
        " said behind that stays on the branch."
    )


class EventsMissed(RequestRefused):
    """More events waited to be read than an iterator keeps.

    >>> error = antiphon.EventsMissed("10,000 events waited unread")
    >>> error.reason
    'EVENTS_MISSED'
    """

    reason = "EVENTS_MISSED"
    next_step = (
        "Iterate over new `events()`, and read the `history()` of the conversations behind that; do"
        " what takes long in another thread or task."
    )


class LoopUnsuitable(RequestRefused):
    """The replica can't be used in the event loop that makes the call."""

    reason = "LOOP_UNSUITABLE"
    next_step = (
        "Await the async form in the event loop that opened its replica. Use the blocking form in"
        " plain functions, also as a tool, and in other threads."
    )


class ProcessForked(RequestRefused):
    """A process that was forked from one with a link to a hub can have none itself."""

    reason = "PROCESS_FORKED"
    next_step = (
        'Start the process by spawn, as with multiprocessing.get_context("spawn"), or link only'
        " behind the fork."
    )


class RunUnfinished(RequestRefused):
    """The run has no answer yet.

    >>> run = trip.run("Capital of France?")
    >>> try:
    ...     run.answer
    ... except antiphon.RunUnfinished as error:
    ...     print(error.next_step)
    Iterate over the run to its end, or call its result().
    """

    reason = "RUN_UNFINISHED"
    next_step = "Iterate over the run to its end, or call its result()."

    def __init__(self, detail: str = "", *, next_step: str = "", **recovery: Any) -> None:
        """Set what to do in place of reading on, which helps no run that has ended."""
        super().__init__(detail, **recovery)
        if next_step:
            with_step(self, next_step)


class RunTooLong(RequestRefused):
    """The model calls more tools than the run may make.

    >>> try:
    ...     trip.run("Book in Rome.", tools=[book], calls_max=0).result()
    ... except antiphon.RunTooLong as error:
    ...     print(error)
    the run has made 0 of 0 calls, and the model calls 'book' again
    """

    reason = "RUN_TOO_LONG"
    next_step = (
        "Run it again with its key and a greater `calls_max`, or ask something else: the branch is"
        " free."
    )


class ToolUnsuitable(RequestRefused):
    """The function can't be described as a JSON schema.

    >>> try:
    ...     antiphon.tool(lambda city: city)
    ... except antiphon.ToolUnsuitable as error:
    ...     print(error)
    'city' has no annotation
    """

    reason = "TOOL_UNSUITABLE"
    next_step = (
        "Give a function of its own name, each parameter annotated as str, int, float, bool,"
        " list, dict or a Literal."
    )


class CallOpen(HostError):
    """A call has no result, and no run that is known here is working on it.

    >>> error = antiphon.CallOpen("'book' was started", call_id="1", effect_key="ab12")
    >>> error.reason, error.call_id
    ('CALL_OPEN', '1')
    """

    reason = "CALL_OPEN"
    next_step = (
        "Run it again with its key and tools. If that ends with this error too, find out whether"
        " the effect happened; then pass its result to finish(), or abandon() it. A call of"
        " another member is that member's to finish; an owner may abandon() it."
    )

    def __init__(
        self,
        detail: str = "",
        *,
        call_id: str = "",
        effect_key: str = "",
        executor: PublicKey | None = None,
        **recovery: Any,
    ) -> None:
        """Set the call, the key of its effect, and the member that executes it."""
        super().__init__(detail, **recovery)
        self.call_id = call_id
        self.effect_key = effect_key
        self.executor = executor
