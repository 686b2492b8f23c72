"""Runs whose model calls tools with arguments that the annotations exclude."""

from typing import Literal

import pytest

import antiphon
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked, Token, ToolCall, words


def reply(asked: Asked) -> list[Token | ToolCall]:
    """Book with the arguments in the question, then once more rightly, then repeat the result."""
    first, _, arguments = asked.said.partition(" ")
    if first == "Book":
        return [ToolCall(asked.request_id.hex()[:8], "book", arguments)]
    if asked.said.startswith("The tool"):
        right = '{"city": "Rome", "nights": 3}'
        return [ToolCall(asked.request_id.hex()[:8], "book", right)]
    return list(words(f"Heard: {asked.said}"))


booked: list[int] = []


@antiphon.tool(effect=True)
def book(city: Literal["Rome", "Paris"], nights: int) -> str:
    """Book nights in a city."""
    booked.append(nights)
    return f"{nights * 100} EUR in {city}"


@pytest.fixture
async def mistaken(lab: Lab) -> Lab:
    """A hub with a host that calls the tool as it is told to, for both forms."""
    booked.clear()
    await lab.start_host(reply)
    return lab


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": "Rome", "nights": "3"}', "'nights' is \"3\", and not a whole number"),
        ('{"city": "Hell", "nights": 3}', '\'city\' is "Hell", and not one of "Rome", "Paris"'),
        ('{"city": "Rome", "nights": "\\ud800"}', "'nights' is \"?\", and not a whole number"),
    ],
)
async def test_a_tool_is_not_called_with_a_wrong_argument(
    mistaken: Lab, arguments: str, words: str
):
    async with mistaken.open() as me:
        trip = await me.conversation("trip")
        run = trip.run(f"Book {arguments}", tools=[book])
        seen = [event async for event in run]
        wrong, right = (event for event in seen if isinstance(event, antiphon.ToolDone))
        assert wrong.is_error
        assert wrong.result == f"The tool 'book' was not called: {words}. Correct the argument."
        assert (right.is_error, right.result) == (False, "300 EUR in Rome")
        assert sum(isinstance(event, antiphon.ToolStarted) for event in seen) == 1
        assert booked == [3]
        assert run.answer.text == "Heard: 300 EUR in Rome"


async def test_a_call_with_a_wrong_argument_counts(mistaken: Lab):
    async with mistaken.open() as me:
        trip = await me.conversation("trip")
        said = 'Book {"city": "Rome", "nights": "3"}'
        with pytest.raises(antiphon.RunTooLong, match="has made 1 of 1 calls"):
            await trip.ask(said, tools=[book], calls_max=1, key="job-17")
        assert booked == []


@pytest.mark.parametrize("arguments", ['{"city": "Rome"}', "[]", '{"city": "Rome", "night": 3}'])
async def test_missing_and_unknown_arguments_are_refused_by_the_function(
    mistaken: Lab, arguments: str
):
    async with mistaken.open() as me:
        trip = await me.conversation("trip")
        answer = await trip.ask(f"Book {arguments}", tools=[book])
        assert answer.text.startswith(("Heard: TypeError: ", "Heard: ValueError: "))
        assert booked == []
