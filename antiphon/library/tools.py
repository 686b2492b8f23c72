"""Tools: functions that a model may call, described by their annotations (spec/07-host §8).

Pure: the driver runs the tools.
"""

import inspect
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from antiphon.library.errors import ToolUnsuitable
from antiphon.library.given import check_text
from replica.errors import with_step
from replica.limits import BODY_BYTES_MAX, TOOL_NAME_BYTES_MAX
from replica.log import ToolDefinition, Tools, read_back
from replica.refusals import ArgumentInvalid, BodyMalformed, BodyTooLarge

P = ParamSpec("P")
R = TypeVar("R")
EFFECT_PARAMETER = "effect_key"
"""A parameter of this name gets the key of the effect, and the model does not see it."""
RESULT_BYTES_MAX = BODY_BYTES_MAX - 4096
"""The rest of a body is for the call's id and what surrounds it."""
_NAMES: Mapping[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
    dict: "object", type(None): "null",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call; see `tool`, also for what `resolve` has to know.

    >>> book.name, book.effect, book("Rome")
    ('book', True, 'booked in Rome')
    """

    function: Callable[..., Any]
    definition: ToolDefinition
    effect: bool = False
    resolve: Callable[[str], Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.definition.name

    @property
    def wants_key(self) -> bool:
        """Whether the function has a parameter for the key of its effect."""
        return EFFECT_PARAMETER in inspect.signature(self.function).parameters


@dataclass(frozen=True, slots=True)
class FunctionTool(Tool, Generic[P, R]):
    """A tool with the types of its function; `tool` returns it."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the function itself."""


class Decorator(Protocol):
    """The decorator that `tool` returns when it is called with options."""

    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]:
        """Make a function a tool."""


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    effect: bool = False,
    resolve: Callable[[str], Any] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Decorator: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: bool = False,
    resolve: Callable[[str], Any] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> FunctionTool[Any, Any] | Decorator:
    """Make a function a tool; its annotations and docstring describe it to the model.

    With `effect`, the start of a call is durable in the log before the function runs. After a
    crash `resolve(effect_key)` returns the result if the effect happened; if it returns None, the
    function runs. It is also asked on another device of the key, while the function runs on the
    first: it has to wait for an effect in progress, or raise, else the effect happens twice.
    Without `resolve`, the function is not run again and the call stays open (CALL_OPEN). If the
    function has a parameter `effect_key`, it receives that key. The function may be async.
    Raises ToolUnsuitable, ArgumentInvalid.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add.definition.description, add(1, 2)
    ('Add two numbers.', 3)
    """
    if resolve is not None and not callable(resolve):
        raise ArgumentInvalid(f"resolve is {resolve!r}, and no function")

    def make(wrapped: Callable[P, R]) -> FunctionTool[P, R]:
        schema = json.dumps(schema_of(wrapped), ensure_ascii=False)
        called = _name(wrapped.__name__ if name is None else name)
        text = (inspect.getdoc(wrapped) or "") if description is None else description
        check_text(text, "the description of a tool")
        return FunctionTool(wrapped, ToolDefinition(called, text, schema), effect, resolve)

    return make if function is None else make(function)


def _name(name: str) -> str:
    size = len(check_text(name, "the name of a tool").encode())
    if not size:
        raise ArgumentInvalid("the name of a tool is empty")
    if size > TOOL_NAME_BYTES_MAX:
        raise ArgumentInvalid(
            f"the name of a tool has {size} bytes, of at most {TOOL_NAME_BYTES_MAX}"
        )
    return name


def as_tools(given: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return tools by name; plain functions become tools without an effect."""
    if not isinstance(given, Iterable):
        raise ToolUnsuitable(f"tools are a list of functions, not {given!r}")
    made = [one if isinstance(one, Tool) else tool(_function(one)) for one in given]
    by_name = {one.name: one for one in made}
    if len(by_name) < len(made):
        raise ToolUnsuitable("two tools have the same name")
    _check_offer(Tools(tuple(one.definition for one in made)))
    return by_name


def _check_offer(offer: Tools) -> None:
    """Raise ToolUnsuitable for tools that no entry of the log holds."""
    try:
        read_back(offer)
    except (BodyMalformed, BodyTooLarge) as error:
        refused = ToolUnsuitable(f"{len(offer.tools):,} tools in one run: {error.detail}")
        raise with_step(refused, "Offer fewer tools, or shorten their descriptions.") from error


def _function(one: object) -> Callable[..., Any]:
    """Return a function; `tool` of None would be a decorator. Raises ToolUnsuitable."""
    if not callable(one):
        raise ToolUnsuitable(f"{one!r} is no function")
    return one


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of a function's parameters. Raises ToolUnsuitable."""
    if not inspect.isroutine(function):
        raise ToolUnsuitable(f"{function!r} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolUnsuitable(
            f"{function!r} is a generator, and a call would run none of it; return a list"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise ToolUnsuitable(f"{function!r} has no signature; wrap it in a function") from error
    try:
        hints = get_type_hints(function)
    except Exception as error:  # whatever evaluating a text raises
        detail = text_of_error(error)
        raise ToolUnsuitable(f"{function!r}: its annotations can't be read: {detail}") from error
    properties, required = {}, []
    for parameter in parameters:
        if parameter.name == EFFECT_PARAMETER:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ToolUnsuitable(f"'{parameter.name}' can't be passed by name")
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name not in hints:
            bound = "; of a class, make the method of an object a tool" * (parameter.name == "self")
            raise ToolUnsuitable(f"'{parameter.name}' has no annotation{bound}")
        properties[parameter.name] = _schema(hints[parameter.name], parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | {"required": required, "additionalProperties": False}


def _schema(hint: Any, name: str) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": [_literal(one, name) for one in arguments]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, name) for one in arguments]}
    if origin is list and arguments:
        return {"type": "array", "items": _schema(arguments[0], name)}
    if origin is dict and arguments and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], name)}
    if hint is Any:
        return {}
    bare = origin if origin in (list, dict) and not arguments else hint  # typing.List, typing.Dict
    for known, kind in _NAMES.items():  # by identity: an annotation may have no hash
        if bare is known:
            return {"type": kind}
    raise ToolUnsuitable(f"'{name}' has an annotation without a JSON type: {hint!r}")


def _literal(value: Any, name: str) -> str | int | None:
    try:
        if value is None or isinstance(value, int):
            return value
        return check_text(value, name)
    except ArgumentInvalid as error:
        raise ToolUnsuitable(f"'{name}' has a Literal without JSON: {value!r}") from error


def text_of_result(value: Any) -> str:
    """Return a tool's value as text: text as it is, anything else as JSON, else its repr.

    Raises nothing: the tool has run (DECISIONS D450). A message has room for
    RESULT_BYTES_MAX; a longer text is cut there, and says so.
    """
    text = value if isinstance(value, str) else _shown(value)
    data = text.encode(errors="replace")  # half of a pair of surrogates has no bytes
    if len(data) <= RESULT_BYTES_MAX:
        return data.decode()
    kept = data[:RESULT_BYTES_MAX].decode(errors="ignore")
    return f"{kept}\n[cut here: the result has {len(data):,} bytes]"


def text_of_error(error: BaseException) -> str:
    """Return the type and the text of what a function of the program raised. Raises nothing."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001  # raised by the program's own __str__
        return f"{type(error).__name__}: (no text)"


def _shown(value: Any) -> str:
    for show in (partial(json.dumps, ensure_ascii=False, default=str), repr):
        try:
            return str(show(value))
        except BaseException:  # noqa: BLE001, S112  # raised by the program's own methods
            continue
    return f"(a value of the type {type(value).__name__}, which has no text)"
