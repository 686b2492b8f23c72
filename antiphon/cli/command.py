"""Declaration of commands: own parameters, common parameters, and error handling.

    @command(app, "log")
    async def log(session: Session, conversation: ...) -> None: ...

adds --json, --data-dir and --hub-address, opens a Session, runs the coroutine, and
reports every AntiphonError with exit code 1.
"""

import asyncio
import functools
import inspect
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from antiphon.cli.config import load_settings
from antiphon.cli.errors import ConfigInvalid, FileUnusable
from antiphon.cli.output import Output
from antiphon.cli.session import Session
from replica.errors import AntiphonError

COMMON = "Common options"
EXIT_FAILED = 1
EXIT_USAGE = 2

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Data as JSON lines on stdout.", rich_help_panel=COMMON)
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="This replica's folder.", rich_help_panel=COMMON),
]
Hub = Annotated[
    str | None,
    typer.Option(
        "--hub-address",
        metavar="HOST:PORT",
        help="The hub to sync with.",
        rich_help_panel=COMMON,
    ),
]
ConversationArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="Conversation: first digits of its id; without, the last used."
    ),
]


@dataclass(slots=True)
class RootOptions:
    """The options given before the command's name."""

    config: Path | None = None
    data_dir: Path | None = None
    hub: str | None = None


class _PlainFlags:
    """Shows flags without a type in the help, since they have no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class beside it
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command."""


class Group(_PlainFlags, TyperGroup):
    """A group of commands."""


Body = Callable[..., Coroutine[Any, Any, int | None] | int | None]
"""A command: a coroutine function, or a plain one that owns the main thread."""


def command(
    app: typer.Typer, name: str, *, has_replica: bool = True, **options: Any
) -> Callable[[Body], Body]:
    """Register a function as a command; its first parameter is the Session.

    A command without a replica may define --data-dir itself.
    """

    def register(body: Body) -> Body:
        @functools.wraps(body)
        def run(
            ctx: typer.Context,
            *,
            json_: bool = False,
            data_dir_: Path | None = None,
            hub_: str | None = None,
            **own: Any,
        ) -> None:
            root = ctx.find_object(RootOptions) or RootOptions()
            flags = {"data_dir": data_dir_ or root.data_dir, "hub": hub_ or root.hub}
            out = Output(as_json=json_)
            try:
                session = Session(load_settings(flags, root.config), out)
                done = body(session, **own)
                code = done if isinstance(done, int | None) else asyncio.run(done)
            except ConfigInvalid as error:
                out.fail(error)
                raise typer.Exit(EXIT_USAGE) from None
            except AntiphonError as error:
                out.fail(error)
                raise typer.Exit(EXIT_FAILED) from None
            except BrokenPipeError:
                raise  # the reader of our output has closed it
            except OSError as error:
                out.fail(FileUnusable(f"{error.filename or 'a file'}: {error.strerror or error}"))
                raise typer.Exit(EXIT_FAILED) from None
            raise typer.Exit(code or 0)

        _declare(run, body, has_replica=has_replica)
        app.command(name, cls=Command, **options)(run)
        return body

    return register


def _declare(run: Callable[..., None], body: Body, *, has_replica: bool) -> None:
    """Give `run` the signature typer reads: context, own parameters, common ones."""
    hints = get_type_hints(body, include_extras=True)
    own = list(inspect.signature(body).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    parameters += [p.replace(kind=keyword, annotation=hints[p.name]) for p in own]
    parameters.append(inspect.Parameter("json_", keyword, default=False, annotation=JsonFlag))
    if has_replica:
        parameters += [
            inspect.Parameter("data_dir_", keyword, default=None, annotation=DataDir),
            inspect.Parameter("hub_", keyword, default=None, annotation=Hub),
        ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # inspect would look through it


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a question that is asked inside an event loop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
