"""The log of a daemon on stderr: one line for each event, for people or as JSON.

Values may repeat a peer's text, such as the detail of a refusal. So control characters in
them are escaped, and no value can begin a line of its own. Tracebacks never show variables,
which hold the contents of conversations. docs/operating.md lists the fields.
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from replica.io.process.background_stderr import BackgroundStderr
from replica.io.process.daemon import Stderr

LogFormat = Literal["auto", "console", "json"]
"""`auto` is console on a terminal, else json."""

TEXT_MAX = 1000
"""Most characters of a value."""
EXCEPTION_MAX = 20_000
_MARGIN = "    "
_CONTROL = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x200B, 0x2010),  # joiners, and marks of direction
        *range(0x2028, 0x202F),  # line breaks, and overrides of direction
        *range(0x2066, 0x206A),
        0xFEFF,
    )
}
_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def log_to_stderr(log_format: LogFormat = "auto") -> None:
    """Log a daemon's events to stderr, the libraries' own logs included."""
    stderr = BackgroundStderr(_lines_lost)
    _configure(log_format, logging.INFO, stderr)
    handler = logging.StreamHandler(cast(TextIO, stderr))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=(*_SHARED, structlog.stdlib.ExtraAdder(), _add_library),
            processors=(
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format),
            ),
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # gRPC's tracebacks for what a peer sent: one for each header that is not UTF-8, before any
    # bound. Our own errors in a call are logged by `Answering` (replica/io/serving/rpc.py).
    logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL + 1)


def configure_log(log_format: LogFormat, level: int) -> None:
    """Log events of at least `level` to stderr; leave the libraries' logs as they are."""
    _configure(log_format, level, Stderr())


def _configure(log_format: LogFormat, level: int, stderr: Stderr) -> None:
    structlog.configure(
        processors=(*_SHARED, structlog.dev.set_exc_info, *_renderers(log_format)),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # One write for each line: lines of several threads do not mix.
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, stderr)),
    )


def _lines_lost(count: int) -> None:
    structlog.get_logger().warning("log lines lost", count=count)


def _renderers(log_format: LogFormat) -> tuple[Processor, ...]:
    is_terminal = sys.stderr.isatty()
    shared: tuple[Processor, ...] = (structlog.processors.format_exc_info, plain)
    if log_format == "json" or (log_format == "auto" and not is_terminal):
        return (*shared, structlog.processors.JSONRenderer())
    show = structlog.dev.ConsoleRenderer(
        colors=is_terminal, exception_formatter=structlog.dev.plain_traceback
    )
    return (*shared, harmless, show)


def _add_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the library that logged."""
    event["library"] = event["_record"].name
    return event


def plain(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn values into numbers, texts and lists of them; cut long texts."""
    for name, value in event.items():
        event[name] = _value(value, EXCEPTION_MAX if name == "exception" else TEXT_MAX)
    return event


def _value(value: Any, length: int) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value if len(value) <= length else f"{value[:length]}…"
        case bytes():
            return value.hex()[:length]
        case Path():
            return _value(str(value), length)
        case Mapping():
            return {str(k): _value(v, length) for k, v in value.items()}
        case list() | tuple():
            return [_value(each, length) for each in value]
        case _:
            return _value(repr(value), length)


def harmless(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters; indent a traceback, so that no line of it looks like an event."""
    for name, value in event.items():
        if name == "exception":
            lines = (line.translate(_CONTROL) for line in str(value).split("\n"))
            event[name] = "\n".join(_MARGIN + line for line in lines)
        elif not isinstance(value, bool | int | float | None):
            text = value if isinstance(value, str) else repr(value)
            event[name] = text.translate(_CONTROL)
    return event
