"""What is said on a branch stays on it, in both forms."""

import asyncio
from typing import Any

import pytest

import antiphon
from antiphon.library.errors import BranchUnbegun
from model_host.errors import HostError
from replica.io import Replica
from replica.log import Text, ToolCall
from replica.refusals import ArgumentInvalid
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked, Token
from tests.support.scripted_host import words as tokens

FORMS = ["blocking"]


async def words(handle: Any) -> list[str]:
    """Return what was said and answered, as the history of a handle shows it."""
    shown = [e for e in await handle.history() if isinstance(e, antiphon.Said | antiphon.Answered)]
    return [e.text if isinstance(e, antiphon.Said) else e.answer.text for e in shown]


@pytest.mark.parametrize("asks_between", [True, False])
async def test_nothing_is_said_on_a_branch_that_has_no_turn(
    talking: Lab, *, asks_between: bool
) -> None:
    """It would be in the next context of the branch that goes on there (ORD-10)."""
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("one")
        if asks_between:
            await trip.ask("two")
        before = await words(trip)
        other = trip.at(first.entry)
        with pytest.raises(BranchUnbegun, match="nothing was asked behind") as refused:
            await other.say("only on other")
        assert "ask" in refused.value.next_step
        assert await words(trip) == before
        assert await words(other) == ["one", "You said: one"]
        await trip.ask("three")
        assert await words(trip) == [*before, "three", "You said: three"]


async def test_words_behind_the_first_turn_of_a_branch_stay_on_it(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("one")
        await trip.ask("two")
        other = trip.at(first.entry)
        await other.ask((Text("only on other, "), Text("uno")))
        await other.say("here too")
        await trip.ask("three")
        await other.ask("dos")
        uno = "only on other, uno"
        asked_there = [uno, f"You said: {uno}", "here too", "dos", "You said: dos"]
        assert await words(other) == ["one", "You said: one", *asked_there]
        asked_here = ["two", "You said: two", "three", "You said: three"]
        assert await words(trip) == ["one", "You said: one", *asked_here]


async def test_a_switch_to_a_branch_without_a_turn_says_nothing_there_either(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("one")
        await trip.switch(trip.at(first.entry))
        with pytest.raises(BranchUnbegun):
            await trip.say("Where does it go?")
        await trip.ask("two")
        await trip.say("Here.")
        assert (await words(trip))[-1] == "Here."


async def test_a_switch_to_a_branch_of_another_conversation_is_refused(talking: Lab):
    async with talking.open() as me:
        trip, other = await me.conversation("trip"), await me.conversation("other")
        await trip.ask("one")
        there = await other.ask("two")
        before = await words(trip)
        for branch in (*await other.branches(), other.at(there.entry)):
            with pytest.raises(ArgumentInvalid, match="is a branch of another conversation"):
                await trip.switch(branch)
        with pytest.raises(ArgumentInvalid, match="no branch holds this entry"):
            await trip.switch(there.entry)
        assert await words(trip) == before
        await trip.ask("three")
        assert await words(trip) == [*before, "three", "You said: three"]


async def test_turns_at_once_through_one_handle_are_on_one_branch(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("One?")
        branch = trip.at(first.entry)
        texts = [f"Number {i}?" for i in range(4)]
        answers = await asyncio.gather(*(branch.ask(text) for text in texts))
        assert [answer.text for answer in answers] == [f"You said: {text}" for text in texts]
        said = [event.text for event in await branch.history() if isinstance(event, antiphon.Said)]
        assert sorted(said) == sorted(["One?", *texts])
        assert len(await trip.branches()) == 1


async def test_a_switch_does_not_come_between_a_turn_and_the_move_to_it(
    talking: Lab, monkeypatch: pytest.MonkeyPatch
):
    """The turn that is being written counts as the earlier of the two."""
    writing, go_on = asyncio.Event(), asyncio.Event()
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first, second = await trip.ask("One?"), await trip.ask("Two?")
        branch, loop = trip.at(first.entry), asyncio.get_running_loop()
        append = Replica.append_chain

        async def slowly(replica: Replica, *args: Any, **options: Any) -> Any:
            loop.call_soon_threadsafe(writing.set)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
            return await append(replica, *args, **options)

        monkeypatch.setattr(Replica, "append_chain", slowly)
        asking = asyncio.create_task(branch.ask("Another?"))
        await writing.wait()
        monkeypatch.undo()
        switching = asyncio.create_task(branch.switch(second.entry))
        go_on.set()
        await asyncio.gather(asking, switching)
        texts = [e.text for e in await branch.history() if isinstance(e, antiphon.Said)]
        assert texts == ["One?", "Two?"]


async def test_a_refusal_after_an_answer_advises_to_go_on_elsewhere(lab: Lab):
    """It advised to withdraw the message, which is refused once an answer has read it."""

    def reply(asked: Asked) -> list[Token | ToolCall]:
        if asked.said.startswith("Look"):
            return [ToolCall("1", "look", "{}")]
        if asked.said == "too much":
            raise HostError("not now")
        return [*tokens("Fine.")]

    def look() -> str:
        """Look around."""
        return "too much"

    await lab.start_host(reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("Good morning.")
        with pytest.raises(antiphon.AnswerRefused, match="not now") as refused:
            await trip.run("Look around.", tools=[look]).result()
        with pytest.raises(ArgumentInvalid, match="in the context of an answer"):
            await trip.cancel(refused.value.message)
        assert refused.value.next_step.startswith("Go on elsewhere, by `at()`")
        assert (await trip.at(first.entry).ask("Then?")).text == "Fine."
