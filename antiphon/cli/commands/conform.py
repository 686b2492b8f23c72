"""`antiphon conform`: check any implementation (spec/conform-core.md, spec/conform-hub.md)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.commands import conform_peers
from antiphon.cli.commands.conform_hub import hub
from antiphon.cli.commands.conform_report import (
    Html,
    Json,
    Junit,
    ListFlag,
    Only,
    chosen,
    finish,
    print_cases,
    suite,
    telling,
)
from antiphon.cli.common import Command, Group
from antiphon.conformance import report
from antiphon.conformance.forms import FORMS
from antiphon.conformance.io import Answerer, core_cases, judge
from antiphon.conformance.questions import Case

_PANEL = "Run"


def register(app: typer.Typer) -> None:
    """Add the command."""
    words = "Check any implementation of the protocol."
    conform = typer.Typer(cls=Group, no_args_is_help=True, help=words)
    conform.command("core", cls=Command)(core)
    conform.command("hub", cls=Command)(hub)
    conform_peers.register(conform)
    app.add_typer(conform, name="conform", rich_help_panel=_PANEL)


@suite
def core(  # noqa: PLR0917  # options, each given by its name
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The core, which answers questions on stdin."),
    ] = None,
    list_cases: ListFlag = False,
    only: Only = "",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Leave out a kind of question, such as bundle."),
    ] = None,
    logs: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random logs besides the vectors.")
    ] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the first random log.")] = 0,
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
    failed: Annotated[
        Path | None,
        typer.Option(help="Each failed question with its answer, as a line of JSON."),
    ] = None,
) -> None:
    """Ask a command the questions of the pure core; exit 1 if an answer is wrong."""
    left_out = set(without or ())
    if unknown := sorted(left_out - FORMS.keys()):
        kinds = ", ".join(FORMS)
        raise typer.BadParameter(
            f"{', '.join(map(repr, unknown))}: no kind of question; give --without once for each"
            f" of {kinds}"
        )
    all_cases = core_cases(first_seed=seed, logs=logs)
    cases = [one for one in chosen(all_cases, only) if one.question["ask"] not in left_out]
    if list_cases:
        print_cases(cases)
        return
    if not command:
        raise typer.BadParameter("name the command to check: antiphon conform core -- COMMAND")
    outcomes = _outcomes(command, cases)
    if failed is not None:
        failed.write_text(report.as_failed_questions(outcomes))
    finish(outcomes, json_file, junit, html)


def _outcomes(command: list[str], cases: Sequence[Case]) -> list[report.Outcome]:
    outcomes, answerer = list[report.Outcome](), Answerer(command)
    try:
        with telling(len(cases)) as tell:
            for outcome in judge(answerer, cases):
                tell(outcome)
                outcomes.append(outcome)
    finally:
        answerer.close()
    return outcomes
