"""An agent with two tools. You can kill it at any time and start it again; it resumes.

python examples/agent.py FOLDER HUB [--host KEY]
"""

import argparse
from pathlib import Path

import antiphon

options = argparse.ArgumentParser()
for name in ("folder", "hub", "--host"):
    options.add_argument(name)
given = options.parse_args()
ledger = Path(given.folder) / "bookings.txt"  # stands in for the booking service


@antiphon.tool
def weather(city: str) -> str:
    """Say how the weather is in a city."""
    return f"sunny in {city}"


def was_booked(effect_key: str) -> str | None:
    """Ask the service about an earlier booking."""
    return "booked" if ledger.exists() and effect_key in ledger.read_text() else None


@antiphon.tool(effect=True, resolve=was_booked)
def book(city: str, nights: int, effect_key: str) -> str:
    """Book nights in a city."""
    with ledger.open("a") as file:
        file.write(f"{effect_key} {city} {nights}\n")
    return "booked"


with antiphon.open(given.folder, hub=given.hub, host=given.host) as me:
    trip = me.conversation("trip", system="Plan trips.")
    run = trip.run("Book two sunny nights.", tools=[weather, book], key="job-17", calls_max=4)
    try:
        for event in run:
            print(type(event).__name__, flush=True)
        print("done:", run.answer.text)
    except antiphon.RunTooLong as error:
        print(error)  # a small model may keep calling tools
