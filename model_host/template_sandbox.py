"""A chat template compiled and run in Jinja's sandbox (spec/07-host §2). Pure.

The sandbox keeps a template from what is around it, and not from using any time and memory:
a host runs it in a process of its own, which loads little else (D586).
"""

import json
from collections.abc import Mapping, Sequence

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model_host.refusals import cleaned

TEXT_BYTES_MAX = 256 * 1024
"""Most bytes that a template writes for a context without messages."""
MESSAGE_TEXT_BYTES_MAX = 4 * 1024
"""Most bytes that it writes beside those for each message."""
_DETAIL_CHARACTERS_MAX = 200

Messages = Sequence[Mapping[str, object]]


class TemplateFault(Exception):  # it is no error of the host
    """Why a template does not compile, or does not render some messages."""


class Sandbox:
    """A chat template with fixed inputs."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        """Compile `source`. Raises TemplateFault."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = _to_json  # jinja's own escapes for web pages
        # With a clock or with chance, two renderings of one log would differ.
        environment.globals["strftime_now"] = _no_clock
        del environment.globals["lipsum"], environment.filters["random"]
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
            raise TemplateFault(f"the template refuses this context: {_detail(error)}") from error
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
    return cleaned(words, _DETAIL_CHARACTERS_MAX) or "no reason given"


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _no_clock(_format: str) -> str:
    raise TemplateError("the template asks for the date; log it as a system message instead")
