"""The `antiphon` command: talk with a model over a log you own.

    Talk   new · chat · send · cancel · fork · switch · title · warm
    Look   log · list · status · branches · pages
    Share  invite · invitations · join · members
    Keep   clone · export · import · verify · repair · replay · delete · key · hub
    Run    up · host · top · model · doctor · conform

One module per family; `command` gives them all the same options and the same
exit codes: 1 for an error, 2 for wrong usage, 130 for Ctrl-C.
"""

import io
import json
import logging
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from replica.imports import uncollected

with uncollected():
    import typer

    from antiphon.cli.chat import chat
    from antiphon.cli.commands import (
        branches,
        cancel,
        clone,
        conform,
        doctor,
        fork,
        hub,
        invite,
        key,
        log,
        members,
        model,
        new,
        overview,
        pages,
        repair,
        replay,
        send,
        serve,
        top,
        transfer,
        up,
        verify,
        warm,
    )
    from antiphon.cli.common import (
        EXIT_FAILED,
        EXIT_USAGE,
        Group,
        RootOptions,
        Unforeseen,
        load_settings,
    )
    from antiphon.cli.views import Output
    from replica.errors import AntiphonError
    from replica.io import ConfigInvalid, ReaderGone, configure_log, guarded_streams

VERBOSE = {"--verbose", "-v"}

app = typer.Typer(
    name="antiphon",
    cls=Group,
    help="Keep a language-model conversation in sync: the log is yours, the KV cache is its cache.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
FAMILIES = (
    new, chat, send, fork, branches, cancel, warm, log, overview, pages, invite, members, clone,
    transfer, verify, repair, replay, key, hub, up, serve, top, model, doctor, conform,
)  # fmt: skip
for family in FAMILIES:
    family.register(app)


@app.callback(invoke_without_command=True)
def antiphon(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Settings file, TOML.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="<path>", help="This replica's folder.")
    ] = None,
    hub_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The hub to sync with.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Logs on stderr.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings in force, as JSON.")
    ] = False,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read the options given before the command's name."""
    set_log_level(logging.DEBUG if verbose else logging.CRITICAL)
    ctx.obj = RootOptions(config, data_dir, hub_address, verbose)
    if show_version:
        print(f"antiphon {_version()}")
        raise typer.Exit
    if print_config:
        try:
            settings = load_settings({"data_dir": data_dir, "hub": hub_address}, config)
        except ConfigInvalid as error:
            Output().fail(error)
            raise typer.Exit(EXIT_USAGE) from None
        print(json.dumps(settings.model_dump(mode="json"), indent=2))
        raise typer.Exit


def set_log_level(level: int) -> None:
    """Send library logs of at least `level` to stderr; stdout is for data."""
    configure_log("console", level)


def _version() -> str:
    try:
        return version("antiphon")
    except PackageNotFoundError:
        return "(not installed)"


def main() -> None:
    """Run the command; the entry point."""
    # Characters that can't be shown become question marks; invalid input is refused later.
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    try:
        with guarded_streams():
            app()
    except ReaderGone:
        sys.exit(EXIT_FAILED)
    except AntiphonError as error:
        Output(as_json="--json" in sys.argv).fail(error)
        sys.exit(EXIT_FAILED)
    except Exception as error:  # reported without a traceback
        if VERBOSE & set(sys.argv):
            raise
        Output(as_json="--json" in sys.argv).fail(Unforeseen(f"{type(error).__name__}: {error}"))
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
