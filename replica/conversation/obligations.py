"""Tool calls, and who closes them (spec/07-host §8). Pure.

A call is opened by an answer, or by a message of the executor of the request before it. Its
executor alone closes it with a result; the requester or an owner may close it with an error,
so that an executor that is gone does not keep a branch waiting.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from replica.ids import PublicKey
from replica.log import Body, Generation, Message, Part, Request, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class Asked:
    """The keys behind a request: its author, and the executor of calls in its answer."""

    requester: PublicKey
    executor: PublicKey

    @classmethod
    def of(cls, author: PublicKey, request: Request) -> "Asked":
        """Return the keys behind a request of `author`, who executes unless it names another."""
        return cls(author, request.executor or author)

    def may_close(self, author: PublicKey, owners: Set[PublicKey], *, is_error: bool) -> bool:
        """Say whether a result of `author` closes a call: its executor's, or an abandonment."""
        return author == self.executor or (is_error and author in {self.requester, *owners})


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the context, and the keys that may close it."""

    asked: Asked
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Ledger:
    """The calls of a context by id; never changed."""

    calls: Mapping[str, Call] = field(default_factory=dict)
    asked: Asked | None = None
    """The last request of the context."""

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The ids of calls without a result, in the order of their opening."""
        return tuple(call_id for call_id, call in self.calls.items() if call.is_open)

    def after(
        self,
        author: PublicKey,
        body: Body | None,
        *,
        answered: Asked | None,
        owners: Set[PublicKey],
    ) -> tuple["Ledger", frozenset[int]]:
        """Return the ledger behind one more entry, and the indices of results that don't count.

        `answered` is the request that a generation answers. A result of another key than the
        call's executor does not count; it renders as nothing.
        """
        match body:
            case Request():
                return replace(self, asked=Asked.of(author, body)), frozenset()
            case Generation():
                opener = answered
            case Message():
                asked = self.asked
                opener = asked if asked is not None and asked.executor == author else None
            case _:
                return self, frozenset()
        if not any(isinstance(part, (ToolCall, ToolResult)) for part in body.parts):
            return self, frozenset()
        return self._after_parts(body.parts, author, opener, owners)

    def _after_parts(
        self,
        parts: tuple[Part, ...],
        author: PublicKey,
        opener: Asked | None,
        owners: Set[PublicKey],
    ) -> tuple["Ledger", frozenset[int]]:
        calls, foreign = dict(self.calls), set()
        for index, part in enumerate(parts):
            if isinstance(part, ToolCall) and opener is not None:
                calls[part.call_id] = Call(opener)
            elif isinstance(part, ToolResult) and part.call_id in calls:
                call = calls[part.call_id]
                if call.asked.may_close(author, owners, is_error=part.is_error):
                    calls[part.call_id] = replace(call, is_open=False)
                else:
                    foreign.add(index)
        return replace(self, calls=calls), frozenset(foreign)
