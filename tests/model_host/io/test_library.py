"""The library on a real hub and a real host: a question, a tool, and a branch."""

import antiphon
from antiphon import aio
from tests.model_host.io.served_host import ServedHost


async def test_a_program_asks_runs_a_tool_and_branches(served: ServedHost):
    booked: list[str] = []

    @antiphon.tool(effect=True)
    def book(city: str, nights: int) -> str:
        """Book nights in a city."""
        booked.append(city)
        return f"booked {nights} nights in {city}"

    decided = iter([antiphon.Call("", "book", '{"city": "Rome", "nights": 2}'), None])
    async with (
        served.host() as host,
        aio.open(served.folder / "me", hub=served.hub.address, host=host.key) as me,
    ):
        trip = await me.conversation("trip", system="Be brief.")
        answer = await trip.ask("What is the capital of France?", max_tokens=12, temperature=0.0)
        assert answer.text
        run = trip.run(
            "Book two nights.", tools=[book], key="job-17", max_tokens=8,
            policy=lambda _answer: next(decided),
        )  # fmt: skip
        events = [event async for event in run]
        assert booked == ["Rome"]
        assert [e.result for e in events if isinstance(e, antiphon.ToolDone)] == [
            "booked 2 nights in Rome"
        ]
        assert run.answer.usage.prompt_tokens > run.answer.usage.cached_tokens > 0
        first = next(e.answer for e in events if isinstance(e, antiphon.Answered))
        other = await trip.at(first.request).ask("Another way?", max_tokens=4)
        assert other.usage.output_tokens <= 4
        assert len(await trip.branches()) == 2
