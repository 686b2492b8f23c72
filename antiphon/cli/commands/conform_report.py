"""The common part of `antiphon conform`: its reports, its errors, and its exit status.

0: all cases passed; 1: a case failed; 2: the cases could not be run or reported.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.common import EXIT_FAILED, EXIT_USAGE, file_unusable
from antiphon.cli.views import Output, harmless
from antiphon.conformance import report
from antiphon.conformance.cases import Check
from antiphon.conformance.io import CommandUnusable, VectorsMissing
from antiphon.conformance.questions import Case
from replica.errors import AntiphonError

ListFlag = Annotated[bool, typer.Option("--list", help="Print the cases and run none.")]
Only = Annotated[
    str,
    typer.Option(metavar="TEXT", help="Cases whose name has this text, or of this requirement."),
]
Json = Annotated[Path | None, typer.Option("--json", help="Report as JSON.")]
Junit = Annotated[Path | None, typer.Option("--junit", help="Report as JUnit XML.")]
Html = Annotated[Path | None, typer.Option("--html", help="Report as one HTML page.")]

TELLING_S = 10.0

P = ParamSpec("P")
AnyCase = TypeVar("AnyCase", bound=Case | Check[Any])


def suite(body: Callable[P, None]) -> Callable[P, None]:
    """Return a command that reports what keeps its cases from being run or reported."""

    @functools.wraps(body)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            body(*args, **options)
        except (CommandUnusable, VectorsMissing) as error:
            raise typer.BadParameter(str(error)) from error
        except AntiphonError as error:
            Output().fail(error)
            raise typer.Exit(EXIT_USAGE) from None
        except BrokenPipeError:
            raise  # the reader of our output has closed it
        except OSError as error:
            Output().fail(file_unusable(error.filename or "a file", error))
            raise typer.Exit(EXIT_USAGE) from None

    return run


def require_hub(address: str) -> None:
    """Raise BadParameter without an address, and AntiphonError if no hub answers there."""
    if not address:
        raise typer.BadParameter("name the hub to check, such as 127.0.0.1:7411")

    async def enter() -> None:
        from antiphon.conformance.io.member import Member

        async with Member.join(address, Ed25519PrivateKey.generate()):
            pass

    asyncio.run(enter())


def chosen(cases: Iterable[AnyCase], only: str) -> list[AnyCase]:
    """Return the cases whose name has the text `only`, or that show the requirement `only`.

    Raises BadParameter if there is none: nothing checked is nothing passed.
    """
    found = [one for one in cases if only in one.name or only in one.requirements]
    if not found:
        raise typer.BadParameter(f"no case is named {only!r} or shows it; see --list")
    return found


def print_cases(cases: Iterable[Case | Check[Any]]) -> None:
    """Print a line per case: its name, its requirements, its rule, and the option it needs."""
    for one in cases:
        more = (one.title, one.needs) if isinstance(one, Check) else ()
        print("  ".join(filter(None, (one.name, " ".join(one.requirements), *more))))


@contextmanager
def telling(total: int) -> Iterator[Callable[[report.Outcome], None]]:
    """Say every 10 s how far a run is, on stderr; give each outcome to what this yields."""
    done, is_over = set[str](), threading.Event()

    def tell() -> None:
        while not is_over.wait(TELLING_S):
            Output().note(f"{len(done)} of {total} cases done")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda outcome: done.add(outcome.case.name)
    finally:
        is_over.set()
        teller.join()


def finish(
    outcomes: list[report.Outcome], json_file: Path | None, junit: Path | None, html: Path | None
) -> None:
    """Print the report for people, write the others, and exit 1 if a case failed."""
    print(harmless(report.as_text(outcomes)), end="")
    written = ((json_file, report.as_json), (junit, report.as_junit), (html, report.as_html))
    for path, form in written:
        if path is not None:
            path.write_text(form(outcomes))
    if report.failed(outcomes):
        raise typer.Exit(EXIT_FAILED)
