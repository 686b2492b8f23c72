"""An agent that joins a conversation with a code. You can kill it and start it again.

python examples/joined_agent.py CODE FOLDER
"""

import sys
import time
from pathlib import Path

import antiphon

if len(sys.argv) != 3:
    sys.exit(__doc__)
code, folder = sys.argv[1], Path(sys.argv[2]).expanduser()
bookings = folder / "bookings.txt"  # stands in for the booking service


def was_booked(effect_key: str = "") -> str | None:
    """Ask the service about an earlier booking."""
    return "booked" if bookings.exists() and effect_key in bookings.read_text() else None


@antiphon.tool(effect=True, resolve=was_booked)
def book(city: str, nights: int, effect_key: str) -> str:
    """Book nights in a city."""
    with bookings.open("a") as file:
        file.write(f"{effect_key} {nights} nights in {city}\n")
    time.sleep(1)  # the service is slow to confirm
    return "booked"


def decide(_answer: antiphon.Answer) -> antiphon.Call | None:
    """Book once, even if the model calls no tools."""
    return None if was_booked() else antiphon.Call("", "book", '{"city": "Rome", "nights": 2}')


with antiphon.join(code, folder) as trip:
    run = trip.run("Which city is the capital of Italy?", tools=[book], key="job-1", policy=decide)
    for event in run:
        print(type(event).__name__, flush=True)
    print("done:", run.answer.text, flush=True)
