"""Cases of the black-box suites: a table of small functions, each with what it shows. Pure.

A case is a coroutine that raises Violation where the implementation under test
breaks a rule, and NotApplicable where a rule cannot be shown on it. The suites
(hub, client, host) have a table each.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from google.protobuf.message import Message as ProtoMessage

from antiphon.conformance.shown import contrast

_Run = TypeVar("_Run")
"""The object a suite passes to its cases: the address under test, its callers."""


class Violation(Exception):
    """The implementation under test breaks a rule; the text says which answer it gave."""


class NotApplicable(Exception):
    """A case shows nothing about this implementation, or as it is run; the text says why."""


@dataclass(frozen=True, slots=True)
class Check(Generic[_Run]):
    """One case of a black-box suite."""

    name: str
    """Theme and function, such as `push/doubled`."""
    requirements: tuple[str, ...]
    title: str
    """The rule in one line, from the function's docstring."""
    run: Callable[[_Run], Awaitable[None]]
    needs: str = ""
    """The option of the command without which it is not run, such as `--restart`."""


class Table(Generic[_Run]):
    """The cases of one suite, by name, in the order of their definition."""

    def __init__(self) -> None:
        """Start empty; `theme` adds cases."""
        self._checks: dict[str, Check[_Run]] = {}

    def __iter__(self) -> Iterator[Check[_Run]]:
        return iter(self._checks.values())

    def __len__(self) -> int:
        return len(self._checks)

    def theme(self, name: str) -> "Theme[_Run]":
        """Return a part of the table, one for each file of cases."""
        return Theme(self, name)

    def add(self, check: Check[_Run]) -> None:
        """Add a case. Raises ValueError for a name that is there, or a case of no requirement."""
        if check.name in self._checks:
            raise ValueError(f"{check.name} is there twice")
        if not check.requirements:
            raise ValueError(f"{check.name} names no requirement")
        self._checks[check.name] = check


@dataclass(frozen=True, slots=True)
class Theme(Generic[_Run]):
    """The cases of one file."""

    table: Table[_Run]
    name: str

    def shows(
        self, *requirements: str, needs: str = ""
    ) -> Callable[[Callable[[_Run], Awaitable[None]]], Callable[[_Run], Awaitable[None]]]:
        """Register the decorated function as a case of these requirement ids."""

        def register(run: Callable[[_Run], Awaitable[None]]) -> Callable[[_Run], Awaitable[None]]:
            title = (run.__doc__ or "").strip().split("\n")[0]
            name = f"{self.name}/{run.__name__.replace('_', '-')}"
            self.table.add(Check(name, requirements, title, run, needs))
            return run

        return register


def check(holds: object, problem: str) -> None:
    """Raise Violation with `problem` unless `holds`."""
    if not holds:
        raise Violation(problem)


def equal(found: object, wanted: object, name: str) -> None:
    """Raise Violation unless the value called `name` is the wanted one."""
    if found != wanted:
        raise Violation(contrast(name, _shown(found), _shown(wanted)))


def wrong(problem: str) -> NoReturn:
    """Raise Violation."""
    raise Violation(problem)


def _shown(value: object) -> str:
    """Return a value as text, with ids as the first digits of their hex."""
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 16 else f"{value.hex()[:12]}…"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, ProtoMessage):
        fields = (f"{field.name}: {_shown(of)}" for field, of in value.ListFields())
        return f"{{{', '.join(fields)}}}"
    return repr(value)
