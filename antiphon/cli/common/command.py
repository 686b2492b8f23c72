"""Declaration of commands: own parameters, common parameters, and error handling.

    @command(app, "log")
    async def log(session: Session, conversation: ...) -> None: ...

adds --json, --data-dir and --hub-address, opens a Session, runs the coroutine, and
reports every AntiphonError with exit code 1.
"""

import asyncio
import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import typer.exceptions
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from antiphon.cli.common.config import load_settings, require_folder
from antiphon.cli.common.errors import Unconfirmed, UsageInvalid, file_unusable
from antiphon.cli.common.session import Session
from antiphon.cli.views import Output
from replica.errors import AntiphonError, with_step
from replica.io import ConfigInvalid

COMMON = "Common options"
EXIT_FAILED = 1
EXIT_USAGE = 2

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Data as JSON lines on stdout.", rich_help_panel=COMMON)
]
DataDir = Annotated[
    str | None,  # as a path the empty text would be the current folder
    typer.Option(
        "--data-dir", metavar="<path>", help="This replica's folder.", rich_help_panel=COMMON
    ),
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
VerboseFlag = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Details of each answer.", rich_help_panel=COMMON),
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
    data_dir: str | None = None
    hub: str | None = None
    is_verbose: bool = False


class _Usage:
    """Shows no type in the help for flags, which have no value, and for lists of arguments.

    Wrong usage is that of this command, or group of commands, so that its help is named.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; the parser leaves the context of an option without value out."""
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # as below
        except typer.exceptions.TyperException as error:
            if getattr(error, "ctx", None) is None:
                error.__dict__["ctx"] = ctx
            raise
        return parsed

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class beside it
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
            if isinstance(param, TyperArgument) and param.nargs != 1:
                param.__dict__["display_type_rich"] = lambda ctx: None  # noqa: ARG005  # by name
        return params


class Command(_Usage, TyperCommand):
    """A command."""


class Group(_Usage, TyperGroup):
    """A group of commands, which reports wrong usage as every other error is reported."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # typer's signature
        windows_expand_args: bool = True,  # typer's signature
        **extra: Any,
    ) -> Any:
        """Run the command line; in standalone mode it ends the process."""
        rest = {"windows_expand_args": windows_expand_args, **extra}
        try:
            code = super().main(args, prog_name, complete_var, False, **rest)
        except typer.Abort:  # at a question
            Output().note("aborted; nothing was done")
            code = EXIT_FAILED
        except typer.exceptions.TyperException as error:
            code = _report_usage(error)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def _report_usage(error: Any) -> int:
    """Report wrong usage, and return the exit code; without a command, print the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return EXIT_USAGE
    words = error.format_message().replace("\n", " ").rstrip(".")
    step = _help_step(context)
    if context is not None and not context.parent and getattr(error, "option_name", "") == "--json":
        step = "It goes behind the command: `antiphon list --json`."
    fault = UsageInvalid(words[:1].lower() + words[1:])
    Output(as_json="--json" in sys.argv).fail(with_step(fault, step))
    return EXIT_USAGE


def _help_step(context: Any) -> str:
    path = context.command_path if context is not None else "antiphon"
    return f"`{path} --help` shows its arguments and options."


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
            data_dir_: str | None = None,
            hub_: str | None = None,
            verbose_: bool = False,
            **own: Any,
        ) -> None:
            root = ctx.find_object(RootOptions) or RootOptions()
            flags = {
                "data_dir": data_dir_ if data_dir_ is not None else root.data_dir,
                "hub": hub_ if hub_ is not None else root.hub,
            }
            out = Output(as_json=json_, is_verbose=verbose_ or root.is_verbose)
            try:
                session = Session(load_settings(flags, root.config), out)
                require_folder(session.settings.data_dir)
                done = body(session, **own)
                code = done if isinstance(done, int | None) else asyncio.run(done)
            except ConfigInvalid as error:
                out.fail(error)
                raise typer.Exit(EXIT_USAGE) from None
            except UsageInvalid as error:
                out.fail(with_step(error, _help_step(ctx)))
                raise typer.Exit(EXIT_USAGE) from None
            except AntiphonError as error:
                out.fail(error)
                raise typer.Exit(EXIT_FAILED) from None
            except BrokenPipeError:
                raise  # the reader of our output has closed it
            except OSError as error:
                out.fail(file_unusable(error.filename or "a file", error))
                raise typer.Exit(EXIT_FAILED) from None
            raise typer.Exit(code or 0)

        run.__doc__ = _unwrapped(body.__doc__ or "")
        _declare(run, body, has_replica=has_replica)
        app.command(name, cls=Command, **options)(run)
        return body

    return register


def _unwrapped(text: str) -> str:
    """Return paragraphs in one line each, to be wrapped at the width of the terminal."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)


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
            inspect.Parameter("verbose_", keyword, default=False, annotation=VerboseFlag),
        ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # inspect would look through it


def is_confirmed(out: Output, facts: Sequence[str], question: str, refusal: Unconfirmed) -> bool:
    """Show facts and ask a question, which Ctrl-C interrupts also inside an event loop.

    Raises `refusal` without a terminal to ask.
    """
    if not os.isatty(0):
        raise refusal
    for fact in facts:
        out.note(fact)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
