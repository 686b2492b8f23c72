"""One program that uses most of the library, in both forms: FORM FOLDER HUB.

It asks, runs a tool with an effect under an idempotency key, branches and invites. The
effect is a line in a file, and stands for a service that books.
"""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import antiphon

JOB = "Book two nights there."
SILENCE_S = 60.0
"""A turn without news for so long has failed."""
OPTIONS: dict[str, Any] = {
    "key": "job-17", "retries": 2, "max_tokens": 200, "timeout_s": SILENCE_S,
}  # fmt: skip


def tool_for(folder: Path) -> antiphon.Tool:
    """Return the tool that books, and that says what became of an earlier booking."""
    ledger = folder / "bookings.txt"

    def was_booked(effect_key: str) -> str | None:
        return "booked" if ledger.exists() and effect_key in ledger.read_text() else None

    @antiphon.tool(effect=True, resolve=was_booked)
    def book(city: str, nights: int, effect_key: str) -> str:
        """Book nights in a city."""
        with ledger.open("a") as file:
            file.write(f"{effect_key} {city} {nights}\n")
        return "booked"

    return book


def blocking(folder: Path, hub: str) -> None:
    """Run it with the blocking form."""
    with antiphon.open(folder, hub=hub) as me:
        trip = me.conversation("trip", system="Be brief.")
        trip.ask("Capital of France?", key="capital", timeout_s=SILENCE_S)
        run = trip.run(JOB, tools=[tool_for(folder)], **OPTIONS)
        for _ in run:
            pass
        kept = trip.history()
        trip.at(run.answer.entry).ask("Another way?", timeout_s=SILENCE_S)
        _print(run.answer.text, kept, trip.invite("bob", role="writer"))


async def asynchronous(folder: Path, hub: str) -> None:
    """Run it with the async form."""
    async with antiphon.aio.open(folder, hub=hub) as me:
        trip = await me.conversation("trip", system="Be brief.")
        await trip.ask("Capital of France?", key="capital", timeout_s=SILENCE_S)
        run = trip.run(JOB, tools=[tool_for(folder)], **OPTIONS)
        async for _ in run:
            pass
        kept = await trip.history()
        await trip.at(run.answer.entry).ask("Another way?", timeout_s=SILENCE_S)
        _print(run.answer.text, kept, await trip.invite("bob", role="writer"))


def _print(answer: str, history: Iterable[antiphon.Event], code: str) -> None:
    jobs = sum(isinstance(event, antiphon.Said) and event.text == JOB for event in history)
    print(f"{answer} {jobs} job, {'a code' if code else 'no code'}", flush=True)


def run(form: str, folder: Path, hub: str) -> None:
    """Run it in one form: async or blocking."""
    if form == "async":
        asyncio.run(asynchronous(folder, hub))
    else:
        blocking(folder, hub)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
