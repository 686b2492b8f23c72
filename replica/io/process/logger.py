"""The logger of these modules, which are a library and those of the command and daemons too.

The command and daemons configure structlog, and so may a program; their loggers are used then.
Else events go to the standard `logging` under the name "antiphon", and structlog stays as it
is: its default would print on the program's own stdout.
"""

import logging
from typing import Any, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

from replica.io.process.logs import harmless, plain

NAME = "antiphon"
"""The standard logger of the library; it shows nothing until the program adds a handler."""


def get_logger() -> Any:
    """Return a logger of structlog that is chosen anew with each event."""
    return _Logger()


class _Logger:
    def __getattr__(self, name: str) -> Any:
        return getattr(_configured if structlog.is_configured() else _standard, name)


def _as_text(_logger: WrappedLogger, _method: str, event: EventDict) -> Any:
    """Return the arguments of a standard logger: the event and its values as one text."""
    exc_info = event.pop("exc_info", None)
    said = harmless(_logger, _method, plain(_logger, _method, event))
    text = str(said.pop("event"))
    values = (f"{name}={value}" for name, value in said.items())
    return ("%s", " ".join((text, *values))), {"exc_info": exc_info}


_configured = structlog.get_logger()
_standard = cast(
    Any,
    structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[structlog.stdlib.filter_by_level, _as_text],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    ),
)
logging.getLogger(NAME).addHandler(logging.NullHandler())
