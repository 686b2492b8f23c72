"""Golden screens of commands that ask a host, drawn from given measures.

The host of the other screens answers no questions (DECISIONS D367); a real one needs torch.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.cli.commands.pages import show_pages
from antiphon.cli.commands.pages_travel import show_export, show_import
from antiphon.cli.commands.replay import ReplayUndecided, check_saved, conclude, follow, show
from antiphon.cli.commands.warm import kept_words, warmed_words
from antiphon.cli.common.config import Settings
from antiphon.cli.common.session import Session
from antiphon.cli.views.names import Names
from antiphon.cli.views.output import Output
from antiphon.cli.views.top_view import Timed, lines, notice
from replica.conversation import (
    NO_TOKEN,
    Cause,
    Finding,
    Outcome,
    Receipt,
    ReplayMode,
    sign_receipt,
)
from replica.errors import AntiphonError
from replica.ids import Digest, EntryId
from replica.io import ContextPages, PagedEntry, ReplayEvent, ReplayProgress
from replica.log.body import Text
from tests.antiphon.cli.inside_terminal import screen_after
from tests.antiphon.cli.test_screens import WIDTHS, compare
from tests.antiphon.cli.test_top_view import LATER, OWN, RUN, sample
from tests.support.callers import until
from tests.support.turns import Turns

DIGEST = Digest(b"\xdd" * 32)
BEGAN_MS = 1_795_000_000_000


def talk() -> tuple[Turns, list[EntryId], list[EntryId]]:
    """A conversation of two turns: its entries, and the answers among them."""
    turns = Turns()
    said = [turns.say(turns.owner, "Where shall we go?", turns.genesis)]
    answers = [turns.answer(turns.ask(turns.owner, said[0]), Text("To the sea."))]
    said.append(turns.say(turns.writer, "And in June?", answers[0]))
    answers.append(turns.answer(turns.ask(turns.writer, said[1]), Text("To the hills.")))
    shown = [said[0].id, answers[0].id, said[1].id, answers[1].id]
    return turns, shown, [answer.id for answer in answers]


TURNS, SHOWN, ANSWERS = talk()
NAMES = Names(TURNS.owner.public, {TURNS.writer.public: "bob"})
PAGES = ContextPages(
    (
        PagedEntry(SHOWN[0], 0, 28, 0, 0), PagedEntry(SHOWN[1], 160, 0, 0, 0),
        PagedEntry(SHOWN[2], 4, 0, 12, 0), PagedEntry(SHOWN[3], 0, 0, 1_024, 88),
    ), stored_tokens=1_216, seal=None,
)  # fmt: skip
ACCEPTED = Finding(
    ANSWERS[0], ANSWERS[0], DIGEST, Outcome.ACCEPTED, prompt_tokens=28, output_tokens=160,
    checked_tokens=160,
)  # fmt: skip
DIFFERS = replace(
    ACCEPTED, answer=ANSWERS[1], outcome=Outcome.DIFFERS, cause=Cause.TOKEN, token_index=7,
    detail="the request yields token 1234 there, not 88", differing_tokens=3,
)  # fmt: skip
UNDECIDED = replace(
    ACCEPTED, answer=ANSWERS[1], outcome=Outcome.UNDECIDED, cause=Cause.OTHER_WEIGHTS,
    token_index=NO_TOKEN, detail="token 88 at 7, where the request yields 1234",
    logprobs=(-0.1, -0.5, -2.25),
)  # fmt: skip
NOT_LOADED = replace(
    UNDECIDED, checked_tokens=0, logprobs=(),
    detail="PROFILE_UNAVAILABLE: small: its model is another file than at the start of the host",
)  # fmt: skip
RECEIPT = Receipt(
    TURNS.host.public, TURNS.held.id, TURNS.held.log.digest, len(TURNS.held.log),
    ReplayMode.VERIFY, Outcome.ACCEPTED, 2, 0, 0, 320, DIGEST, DIGEST, DIGEST, BEGAN_MS,
)  # fmt: skip


def top(out: Output) -> None:
    operator, others = sample(RUN, LATER), replace(sample(RUN, is_operator=False), requests=())
    for now in (operator, others, sample()):
        shown = lines(
            Timed(now, 1.0), None, OWN, address="127.0.0.1:4411", width=out.data.width, height=24
        )
        for line in [*shown, ""]:
            out.show(line)
    away = ["the host is away; waiting for it", "connection refused [HUB_UNREACHABLE]"]
    for line in notice(away, out.data.width):
        out.show(line)


def pages(out: Output) -> None:
    show_pages(out, TURNS.held, PAGES, NAMES)


def travel(out: Output) -> None:
    show_export(Session(Settings(), out), Path("talk.pages"), 7_340_112, TURNS.host.public)
    out.show()
    show_import(out, TURNS.held.id, 1_216, TURNS.host.public)


def warm(out: Output) -> None:
    out.show(warmed_words(1_316, 1_024, 192))
    out.show(kept_words(1_316, 30))


def replay(out: Output) -> None:
    show(out, TURNS.held, ACCEPTED)
    conclude(out, RECEIPT, TURNS.held, [ACCEPTED])
    for finding, counts in (
        (DIFFERS, {"accepted": 1, "differing": 1, "outcome": Outcome.DIFFERS}),
        (UNDECIDED, {"accepted": 1, "undecided": 1, "outcome": Outcome.UNDECIDED}),
        (NOT_LOADED, {"accepted": 1, "undecided": 1, "outcome": Outcome.UNDECIDED}),
    ):
        out.show()
        show(out, TURNS.held, ACCEPTED)
        show(out, TURNS.held, finding)
        try:
            conclude(out, replace(RECEIPT, **counts), TURNS.held, [ACCEPTED, finding])
        except AntiphonError as error:
            out.fail(error)
    out.show()
    try:
        conclude(out, replace(RECEIPT, accepted=0, tokens=0, refused=2, open=1), TURNS.held, [])
    except AntiphonError as error:
        out.fail(error)
    out.show()
    saved = replace(
        RECEIPT, outcome=Outcome.DIFFERS, accepted=1, differing=1, first=ANSWERS[1],
        first_cause=Cause.TOKEN, first_token=7,
    )  # fmt: skip
    try:
        check_saved(out, sign_receipt(saved, TURNS.host.key), None, None)
    except AntiphonError as error:
        out.fail(error)


VIEWS: dict[str, tuple[str, Callable[[Output], None]]] = {
    "top": ("antiphon top --once", top),
    "pages": ("antiphon pages", pages),
    "pages-travel": ("antiphon pages export, import", travel),
    "warm": ("antiphon warm", warm),
    "replay": ("antiphon replay", replay),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_host_is_its_golden_screen(name: str) -> None:
    command, view = VIEWS[name]
    variables = {"NO_COLOR": "1", "TERM": "xterm"}
    shown = {c: screen_after(lambda: view(Output()), variables, c) for c in WIDTHS}
    compare(name, command, shown)


def test_an_undecided_answer_is_no_accepted_one() -> None:
    with pytest.raises(ReplayUndecided), suppress(ValueError):
        conclude(Output(), replace(RECEIPT, outcome=Outcome.UNDECIDED), TURNS.held, [])


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_findings_of_a_replay_stand_on_lines_without_its_progress(columns: int) -> None:
    async def events(out: Output) -> AsyncIterator[ReplayEvent]:
        yield ReplayProgress(0, 320)
        await until(lambda: "0 of 320" in out.people.export_text(clear=False))  # a thread draws it
        for event in (ACCEPTED, ReplayProgress(160, 320), DIFFERS, ACCEPTED, RECEIPT):
            yield event

    def progressing() -> None:
        out = Output()
        out.people.record = True
        asyncio.run(follow(out, TURNS.held, events(out)))

    def plain() -> None:
        for finding in (ACCEPTED, DIFFERS, ACCEPTED):
            show(Output(), TURNS.held, finding)

    variables = {"NO_COLOR": "1", "TERM": "xterm"}
    assert screen_after(progressing, variables, columns) == screen_after(plain, variables, columns)
