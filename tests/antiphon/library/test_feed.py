"""What a feed remembers between events: what goes on, and no more."""

from pathlib import Path

from antiphon.library import events as e
from antiphon.library.io.feed import Feed
from tests.antiphon.library.conftest import Lab


async def test_a_feed_forgets_runs_that_have_ended_and_conversations_that_are_gone(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as me:
            core, trip = me._core, await me.conversation("trip")
            feed = Feed(core)
            for question in ("One?", "Two?"):
                await trip.ask(question)
            found = feed.collected()
            assert sum(isinstance(event, e.Draft) for event in found) > 1
            assert not any(feed._runs.values())
            assert not feed._lost
            await core.delete(trip.id)
            assert trip.id not in feed._runs
