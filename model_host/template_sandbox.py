"""A chat template compiled and run in Jinja's sandbox (spec/07-host §2). Pure.

The sandbox keeps a template from what is around it, and not from using any time and memory:
a host runs it in a process of its own, which loads little else (D586). Nothing in what it writes
differs from one process to the next (D591).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2 import Environment, TemplateError, Undefined, nodes, pass_context, pass_eval_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)
from markupsafe import Markup

from model_host.refusals import cleaned

TEXT_BYTES_MAX = 256 * 1024
"""Most bytes that a template writes for a context without messages."""
MESSAGE_TEXT_BYTES_MAX = 4 * 1024
"""Most bytes that it writes beside those for each message."""
_DETAIL_CHARACTERS_MAX = 200
REFUSES = "the template refuses this context: "
"""The beginning of a fault that a context has caused."""

Messages = Sequence[Mapping[str, object]]


class TemplateFault(Exception):  # it is no error of the host
    """Why a template does not compile, or does not render some messages."""


class Sandbox:
    """A chat template with fixed inputs."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        """Compile `source`. Raises TemplateFault."""
        environment = _Environment()
        self._fixed = {"bos_token": bos_token, "eos_token": eos_token, "tools": None}
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # beside Jinja's own: Python nests 20 blocks, and not 21
            raise TemplateFault(f"the template does not compile: {_detail(error)}") from error

    def render(self, messages: Messages, *, header: bool) -> str:
        """Return the text for messages with any fields. Raises TemplateFault."""
        size_max = TEXT_BYTES_MAX + MESSAGE_TEXT_BYTES_MAX * len(messages)
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=header, **self._fixed
            )
            size = len(text.encode())
        except Exception as error:  # a template is a program, which may divide by zero
            raise TemplateFault(f"{REFUSES}{_detail(error)}") from error
        if size > size_max:
            raise TemplateFault(f"the template writes {size:,} bytes; at most {size_max:,} here")
        return text


def _detail(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # its argument is a value of the template
        words = ""
    # The address of an object is another in each process.
    words = re.sub(r" at 0x[0-9a-f]+", "", words)
    return cleaned(words, _DETAIL_CHARACTERS_MAX) or "no reason given"


# --- values that are written ---------------------------------------------------------------

_ATOMS = (str, int, float, type(None), Undefined)
_TEXT_FILTERS = (
    *("capitalize", "center", "e", "escape", "filesizeformat", "forceescape", "format", "indent"),
    *("lower", "replace", "safe", "string", "striptags", "title", "trim", "truncate", "upper"),
    *("urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
)
"""The filters that make a text of any value."""
_BY_JINJA = (Environment, EvalContext, Context)
"""What Jinja itself gives to a filter."""


def _plain(value: Any) -> Any:
    """Return a value whose text has nothing of this process. Raises TemplateError."""
    if isinstance(value, str):
        return value
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            left += one
        elif not isinstance(one, _ATOMS):
            kind = type(one).__name__
            raise TemplateError(f"it writes a value that is no text, number or list: {kind}")
    return value


def _of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes only arguments whose text has nothing of this process."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if not isinstance(value, _BY_JINJA):
                _plain(value)
        return function(*args, **kwargs)

    return checked


class _Formatter(SandboxedFormatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(_plain(value), conversion)


class _EscapeFormatter(_Formatter, SandboxedEscapeFormatter):
    pass


class _Generator(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        for joined in node.find_all(nodes.Concat):  # of `~`, which no filter sees
            joined.nodes = [
                nodes.Filter(
                    one, "string", [], [], None, None,
                    lineno=one.lineno, environment=self.environment,
                )
                for one in joined.nodes
            ]  # fmt: skip
        super().visit_Template(node, frame)


class _GenerationBlock(Extension):
    """`{% generation %}` marks an answer for training; it renders its contents."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which only plain values become text."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"%", "-"})

    def __init__(self) -> None:
        # Jinja would compute constants as it compiles, and write them past `finalize`.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_finalize,
            extensions=(LoopControlExtension, _GenerationBlock),
        )
        self.globals["raise_exception"] = _raise
        self.filters["tojson"] = _to_json  # jinja's own escapes for web pages
        # With a clock or with chance, two renderings of one log would differ. So they would with
        # addresses: some values show theirs, and pprint sorts by them.
        self.globals["strftime_now"] = Undefined(hint=_NO_CLOCK)
        del self.globals["lipsum"], self.filters["random"], self.filters["pprint"]
        self._join = self.filters["join"]
        self.filters |= {name: _of_plain(self.filters[name]) for name in _TEXT_FILTERS}
        self.filters["join"] = self._joined

    @pass_eval_context
    def _joined(
        self,
        context: EvalContext,
        value: Iterable[Any],
        d: str = "",
        attribute: str | int | None = None,
    ) -> Any:
        if attribute is not None:
            value = map(make_attrgetter(self, attribute), value)
        return self._join(context, [*map(_plain, value)], _plain(d))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _plain(right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, set | frozenset):
            raise TemplateError("the order of a set is another in each process")
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        if owner is Markup or isinstance(owner, Markup):  # its methods escape any value
            args = tuple([*one] if __obj.__name__ == "join" else one for one in args)
            __obj = _of_plain(__obj)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text = value.__self__
        formatter = _Formatter(self)
        if isinstance(text, Markup):
            formatter = _EscapeFormatter(self, escape=text.escape)

        @wraps(value)
        def formatted(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                (kwargs,), args = args, ()
            made: str = type(text)(formatter.vformat(text, args, kwargs))
            return made

        return formatted


@pass_context
def _finalize(_context: Context, value: Any) -> Any:
    return _plain(value)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise TemplateError(_plain(message))


_NO_CLOCK = "the template asks for the date; log it as a system message instead"
"""Many templates ask only where the function is defined."""
