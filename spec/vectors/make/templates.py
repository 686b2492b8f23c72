"""Chat templates of render.json, run by Jinja, and the formats of tools."""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spec.vectors.make.build import pae, sha256

ROLES = {1: "system", 2: "user", 3: "assistant", 4: "tool"}
SENTINEL = re.compile("\u2983antiphon[0-9]+\u2984")

CHATML = """\
{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
<|im_start|>system
Be kind.<|im_end|>
    {% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
BARE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
    "{% else %}{{ raise_exception('another role') }}{% endif %}{% endfor %}"
)
NUMBERED = (
    "{% for m in messages %}{{ loop.index }} {{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ messages|length + 1 }} assistant: {% endif %}"
)
BRACES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}"
    "{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'
    "{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FUSED = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant alternate') }}{% endif %}"
    "{% if m.role == 'user' %}<|im_start|>"
    "{% if loop.first and system is defined %}({{ system }})\n{% endif %}{{ m.content.strip() }}"
    "{% else %}{% generation %} {{ m.content.strip() }}<|im_end|>{% endgeneration %}{% endif %}"
    "{% endfor %}"
)
SYSTEM_FIRST = (
    "{% if messages[0].role != 'system' %}{{ raise_exception('system comes first') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
MOVED = (
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}<|im_start|>"
    "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}"
)
LATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% if messages|length > 3 %}!{% endif %}"
    "assistant\n{% endif %}"
)
LATE_NUMBERED = LATE.replace("{{ m.role }}", "{{ loop.index }} {{ m.role }}")
CLOSING = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\n"
    "<think>hello\n!<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}"
    "{% for c in m.tool_calls %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}!<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LADDER = (
    "{% set behind = {'system': ['user'], 'user': ['assistant'], 'assistant': ['user', 'tool'],"
    " 'tool': ['assistant']} %}{% for m in messages %}"
    "{% if m.role not in (behind[messages[loop.index0 - 1].role] if loop.index0 else ['system']) %}"
    "{{ raise_exception('another order') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TWO_TURNS = (
    "{% if messages[0].role == 'system' and messages|length > 2 %}"
    "{{ raise_exception('too many turns') }}{% endif %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RULES = (
    "A template's own system text is the text with which a turn of the system and one of the user"
    " behind it render as the user's alone: its first literal, without the two of both turns around"
    " it. Where that literal does not begin and end with these, there is none.",
    "Where a TOOLS entry that renders anything opens the first turn of a context, this text and a"
    " blank line come before it, as literals. They do not where the next MESSAGE or GENERATION"
    " behind the entry, in the list of the same seal, is a message of the system. An entry whose"
    " body does not parse is none.",
    "A space that ends a literal goes with the text behind it where the first part of the message"
    " is a text, and not an empty one.",
    "A template refuses the role `tool` if it refuses a turn of it behind a user's and an"
    " assistant's, also with a turn of the system before these. It writes the marks of results if"
    " `<tool_response>` is in the literal that opens this turn.",
    "The literals of the format, the blank lines and the line feeds are literals each for itself:"
    " two that meet are not tokenised as one. In a JSON string a character below U+0020 is"
    " escaped as \\b, \\t, \\n, \\f or \\r, any other of them as \\u and four lowercase"
    " hex digits.",
    "The line feed before a call or a result comes where the message has any token before it, that"
    " of a literal too. Calls and results within a result are rendered like those of a message, and"
    " open and close nothing.",
    "To find the format, `tool_calls` is a list of one object: `type`, `function`, and `function`,"
    " an object of `name` and `arguments`. The message has no `content`. The text of a format is"
    " that of the whole call with its marks, as the format writes it.",
)
KNOWN_TURNS = 3
"""A header is known if it is the same behind all sequences of up to this many turns."""


class RefusedError(Exception):
    """A context is refused; the text is the reason."""


@dataclass(frozen=True)
class Format:
    """The texts of one format of tools, in the order in which the digest covers them."""

    name: str
    heading: str
    between: str
    closing: str
    call_begins: str
    call_ends: str
    arguments_key: str
    result_begins: str
    result_ends: str

    def call(self, name: str, arguments: str) -> str:
        """Return the JSON of a call, without marks."""
        quoted = json.dumps(name, ensure_ascii=False)
        return f'{{"name": {quoted}, "{self.arguments_key}": {arguments or "{}"}}}'


HERMES = Format(
    "hermes",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    "\n",
    "\n</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    "<tool_call>\n",
    "\n</tool_call>",
    "arguments",
    "<tool_response>\n",
    "\n</tool_response>",
)
LLAMA3 = Format(
    "llama3",
    "You have access to the following functions. To call a function, please respond with "
    'JSON for a function call.Respond in the format {"name": function name, "parameters": '
    "dictionary of argument name and its value}.Do not use variables.\n\n",
    "\n\n",
    "\n\n",
    "",
    "",
    "parameters",
    "",
    "",
)
REPLACING = "From now on, these functions replace all earlier ones.\n\n"
NO_TOOLS = "From now on, there are no functions."
FORMATS = (HERMES, LLAMA3)
FORMATS_TEXT = json.dumps([*map(astuple, FORMATS), REPLACING, NO_TOOLS], ensure_ascii=True)
FORMATS_DIGEST = sha256(pae("antiphon/v1/tool-formats", FORMATS_TEXT.encode()))


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


class Marked(Extension):
    """The block `generation`, which renders its contents."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Template:
    """A template, and its room for tools."""

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        """Ask the template how it writes calls and results."""
        self.source, self.bos_token, self.eos_token = source, bos_token, eos_token
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=("jinja2.ext.loopcontrols", Marked)
        )
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = _to_json
        self._template = environment.from_string(source)
        self._literals: dict[tuple[tuple[str, ...], bool], tuple[str, ...] | RefusedError] = {}
        self.format = self._format()
        self.has_system = self._runs("system", "user") and self._runs(
            "system", "user", "assistant", "user"
        )
        self.default_system = self._default_system()
        self.joins_user = self._opening("user", "user") is None
        opening = self._opening("user", "assistant", "tool")
        self.result_role = "user" if opening is None else "tool"
        mark = self.format.result_begins.strip()
        self.marks_results = opening is None or not mark or mark not in opening

    @property
    def digest(self) -> bytes:
        """The template's digest."""
        texts = [t.encode() for t in (self.source, self.bos_token, self.eos_token)]
        framed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return sha256(pae("antiphon/v1/template", framed))

    def run(self, messages: Sequence[dict[str, object]], *, header: bool) -> str:
        """Return the text of messages."""
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=header, tools=None,
                bos_token=self.bos_token, eos_token=self.eos_token,
            )  # fmt: skip
        except Exception as error:
            raise RefusedError("TEMPLATE_UNSUPPORTED") from error

    def literals(self, roles: Sequence[str], *, header: bool) -> list[str]:
        """Return the texts around the contents of turns."""
        key = tuple(roles), header
        if key not in self._literals:
            try:
                self._literals[key] = tuple(self._split(roles, header=header))
            except RefusedError as error:
                self._literals[key] = error
        known = self._literals[key]
        if isinstance(known, RefusedError):
            raise known
        return list(known)

    def _split(self, roles: Sequence[str], *, header: bool) -> list[str]:
        sentinels = [f"\u2983antiphon{number}\u2984" for number in range(len(roles))]
        text = self.run(
            [{"role": r, "content": s} for r, s in zip(roles, sentinels, strict=True)],
            header=header,
        )
        if SENTINEL.findall(text) != sentinels:
            raise RefusedError("TEMPLATE_UNSUPPORTED")
        return SENTINEL.split(text)

    def header(self, turns: Sequence[str]) -> str:
        """Return the header behind turns: that of the last role, if it is known."""
        known = self._headers(turns[-1])
        return known.pop() if len(known) == 1 else self.literals(turns, header=True)[-1]

    def _headers(self, role: str) -> set[str]:
        """Return the headers behind short sequences that end with a role."""
        found = set()
        for count in range(KNOWN_TURNS):
            for before in product(ROLES.values(), repeat=count):
                turns = (*before, role)
                if self._opening(*turns, "assistant", exactly=True) is not None:
                    found.add(self.literals(turns, header=True)[-1])
        return found

    def _format(self) -> Format:
        call = {
            "type": "function",
            "function": {"name": "probe", "arguments": {"key": "value"}},
        }
        asked = {"role": "user", "content": "probe"}
        try:
            text = self.run([asked, {"role": "assistant", "tool_calls": [call]}], header=False)
        except RefusedError:
            return HERMES
        for known in FORMATS:
            written = known.call("probe", '{"key": "value"}')
            if known.call_begins + written + known.call_ends in text:
                return known
        return HERMES

    def _default_system(self) -> str:
        """Return the text of a system turn before the user's that renders as the user's alone."""
        try:
            alone = self.literals(["user"], header=False)[0]
            before, behind = self.literals(["system", "user"], header=False)[:2]
        except RefusedError:
            return ""
        pattern = f"{re.escape(before)}(.*){re.escape(behind)}"
        found = re.fullmatch(pattern, alone, re.DOTALL)
        return found[1] if found is not None else ""

    def _runs(self, *roles: str) -> bool:
        try:
            self.literals(roles, header=True)
        except RefusedError:
            return False
        return True

    def _opening(self, *roles: str, exactly: bool = False) -> str | None:
        for turns in (roles,) if exactly else (roles, ("system", *roles)):
            try:
                return self.literals(turns, header=False)[-2]
            except RefusedError:
                continue
        return None


TEMPLATES = {
    "chatml": Template(CHATML),
    "bare": Template(BARE, "<|im_start|>", "<|im_end|>"),
    "numbered": Template(NUMBERED),
    "braces": Template(BRACES),
    "fused": Template(FUSED),
    "system-first": Template(SYSTEM_FIRST),
    "moved": Template(MOVED),
    "late": Template(LATE),
    "late-numbered": Template(LATE_NUMBERED),
    "closing": Template(CLOSING),
    "ladder": Template(LADDER),
    "two-turns": Template(TWO_TURNS),
}
