"""Runs with tools and keys, in both forms."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import antiphon
from model_host.errors import HostError
from replica.io import keys
from replica.io.store.store import Store
from replica.log.body import ToolCall
from replica.log.entry import public_key
from replica.log.kinds import Kind
from replica.refusals import ArgumentInvalid, NotAllowed
from tests.antiphon.library.conftest import Lab
from tests.support.files import write_locked
from tests.support.scripted_host import Asked, Token, words

FORMS = ["blocking"]


class Booking:
    """A host that books once for each "Book", and says so afterwards; and the tools."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.asked = 0
        self.booked: list[str] = []

    def reply(self, asked: Asked) -> list[Token | ToolCall]:
        """Call the tool, or repeat its result."""
        self.asked += 1
        if self.refusals:
            self.refusals -= 1
            raise HostError("not now")
        if asked.said.startswith("Book"):
            call_id = f"{asked.request_id.hex()[:8]}-0"
            return [*words("Sure."), ToolCall(call_id, "book", '{"city": "Rome", "nights": 2}')]
        return list(words(f"Heard: {asked.said}"))

    @property
    def tool(self) -> antiphon.Tool:
        """A tool with an effect."""

        @antiphon.tool(effect=True)
        def book(city: str, nights: int, effect_key: str) -> str:
            """Book nights in a city."""
            self.booked.append(effect_key)
            return f"{nights} nights in {city}"

        return book


@pytest.fixture
async def booking(lab: Lab) -> Booking:
    booking = Booking()
    await lab.start_host(booking.reply)
    return booking


async def test_a_run_calls_tools_until_the_model_is_done(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Book two nights.", tools=[booking.tool], key="job-17")
        kinds = [type(event).__name__ async for event in run]
        assert run.answer.text == "Heard: 2 nights in Rome"
        assert len(booking.booked) == 1
        order = [k for k in kinds if k.startswith(("Tool", "Answered"))]
        assert order == ["ToolCalled", "Answered", "ToolStarted", "ToolDone", "Answered"]
        shown = [type(event).__name__ for event in await trip.history()]
        assert shown == ["Said", "ToolCalled", "Answered", "ToolDone", "Answered"]


async def test_an_answer_is_returned_once_it_is_durable_here(tmp_path: Path):
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        is_locked = asyncio.Event()

        async def until_locked(_token: int) -> None:
            await is_locked.wait()

        await lab.start_host(pace=until_locked)
        me = await lab.stack.enter_async_context(lab.open())
        trip = await me.conversation("trip")
        events = aiter(trip.run("Where to?", key="job-17"))
        while not isinstance(sealed := await anext(events), antiphon.Sealed):
            pass
        held = me._core.shelf[trip.id]
        async with write_locked(me._core.store.holding.own):
            is_locked.set()
            # No event tells of an answer that is in memory and not durable.
            while held.order.answer(sealed.request) is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await events.aclose()
            again = asyncio.ensure_future(trip.ask("Where to?", key="job-17"))
            early, _ = await asyncio.wait({again}, timeout=0.3)
            assert not early
        assert (await again).text == "You said: Where to?"


async def test_tools_that_a_branch_offers_are_not_offered_again(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        for _ in range(2):
            await trip.ask("Book two nights.", tools=[booking.tool])
    async with await Store.open(lab.folder / "me" / "log" / "log.db") as store:
        entries = (await store.load(trip.id)).entries
    assert [entry.header.kind for entry in entries].count(Kind.TOOLS) == 1


async def test_the_same_key_answers_from_the_log(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("Book two nights.", tools=[booking.tool], key="job-17")
        again = await trip.ask("Book two nights.", tools=[booking.tool], key="job-17")
        assert again == first
        assert (len(booking.booked), booking.asked) == (1, 2)
        with pytest.raises(antiphon.KeyReused):
            await trip.ask("Book three nights.", key="job-17")
        other = await trip.ask("Book two nights.", tools=[booking.tool], key="job-18")
        assert other.entry != first.entry


async def test_a_key_is_found_on_another_device(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("Hello.", key="job-17")
        assert await me.sync()
    device = lab.folder / "device"
    device.mkdir()
    (device / "identity.key").write_bytes((lab.folder / "me/identity.key").read_bytes())
    (device / "identity.key").chmod(0o600)
    async with lab.open("device") as me:
        trip = await me.conversation("trip")
        assert (await trip.ask("Hello.", key="job-17")).entry == first.entry
        assert booking.asked == 1


async def test_two_devices_under_one_key_are_answered_once(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await trip.grant(public_key(keys.load_or_create(lab.folder / "host/identity.key")), "host")
        assert await me.sync()
    device = lab.folder / "device"
    device.mkdir()
    (device / "identity.key").write_bytes((lab.folder / "me/identity.key").read_bytes())
    (device / "identity.key").chmod(0o600)
    async with lab.open("device") as other:
        await other.conversation("trip")
    for name, hub in (("device", {"hub": None}), ("me", {})):  # neither knows of the other
        async with lab.open(name, **hub) as one:
            run = (await one.conversation("trip")).run("Hello.", key="k")
            async for event in run:
                if isinstance(event, antiphon.Asked):
                    break
            await run.close()
    async with lab.open() as me, lab.open("device") as other:
        assert await other.sync()
        assert await me.sync()
        here, there = await me.conversation("trip"), await other.conversation("trip")
        booking = Booking()
        await lab.start_host(booking.reply)
        answers = await asyncio.gather(here.ask("Hello.", key="k"), there.ask("Hello.", key="k"))
        assert answers[0].entry == answers[1].entry
        assert booking.asked == 1


async def test_a_refusal_is_tried_again_as_often_as_said(lab: Lab):
    booking = Booking(refusals=2)
    await lab.start_host(booking.reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(HostError):
            await trip.ask("Hello.", key="job-17", retries=1)
        assert booking.asked == 2
        answer = await trip.ask("Hello.", key="job-17", retries=2)
        assert (answer.text, booking.asked) == ("Heard: Hello.", 3)


async def test_a_refusal_names_its_reason_and_the_message_to_withdraw(lab: Lab):
    booking = Booking(refusals=1)
    await lab.start_host(booking.reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.AnswerRefused, match="not now") as refused:
            await trip.ask("Hello.")
        assert refused.value.reason == "HOST_FAILED"
        (said,) = await trip.history()
        assert refused.value.message == said.entry
        assert refused.value.request is not None
        await trip.cancel(refused.value.message)
        assert (await trip.ask("Again.")).text == "Heard: Again."
        assert [e.text for e in await trip.history() if isinstance(e, antiphon.Said)] == ["Again."]


@antiphon.tool
def fails() -> str:
    """Fail."""
    raise RuntimeError("out of order")


async def test_an_error_and_an_unknown_tool_are_told_to_the_model(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        answer = await trip.ask("Book two nights.", tools=[fails])
        assert answer.text == "Heard: There is no tool 'book'; known: fails."
        decided = iter([antiphon.Call("", "fails"), None])
        answer = await trip.ask("Hello.", tools=[fails], policy=lambda _answer: next(decided))
        assert answer.text == "Heard: RuntimeError: out of order"


class SlowBooking:
    """A tool that runs until it may end."""

    def __init__(self) -> None:
        self.running, self.go_on = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()

    async def book(self, city: str, nights: int) -> str:
        self._loop.call_soon_threadsafe(self.running.set)
        await asyncio.to_thread(self.go_on.wait)  # of another loop in the blocking form
        return f"{nights} nights in {city}"


async def test_a_second_member_asks_while_a_tool_runs(lab: Lab, booking: Booking):
    slow = SlowBooking()
    async with lab.open() as me, lab.open("bob") as bob:
        mine = await me.conversation("trip")
        await mine.grant(bob.key)
        assert await mine.sync()
        theirs = await bob.get(mine.id)
        task = asyncio.create_task(mine.ask("Book two nights.", tools=[antiphon.tool(slow.book)]))
        await slow.running.wait()
        news = theirs.events()  # from now on: what is asked before it is not among them
        other = asyncio.create_task(theirs.ask("And me?"))
        async for event in news:
            if isinstance(event, antiphon.Asked) and event.who == bob.key:
                break
        slow.go_on.set()
        assert (await task).text == "Heard: 2 nights in Rome"
        assert (await other).text == "Heard: And me?"
        assert await mine.sync()
        assert len(await mine.branches()) == 1


async def start_and_leave(trip: Any, booking: Booking, key: str | None = "job-17") -> None:
    """Let a run note the start of its effect, and end it there."""
    run = trip.run("Book two nights.", tools=[booking.tool], key=key)
    async for event in run:
        if isinstance(event, antiphon.ToolStarted):
            booking.booked.append(event.effect_key)
            break
    await run.close()
    assert len(booking.booked) == 1


async def test_a_started_call_is_asked_about(lab: Lab, booking: Booking):
    asked = []

    def happened(effect_key: str) -> str | None:
        asked.append(effect_key)
        return "already booked"

    async with lab.open() as me:
        trip = await me.conversation("trip")
        await start_and_leave(trip, booking)
        known = antiphon.tool(effect=True, resolve=happened)(booking.tool.function)
        answer = await trip.ask("Book two nights.", tools=[known], key="job-17")
        assert answer.text == "Heard: already booked"
        assert asked == booking.booked  # the key it was started under, and it ran once


async def test_a_started_call_that_did_not_happen_runs(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await start_and_leave(trip, booking)
        known = antiphon.tool(effect=True, resolve=lambda _key: None)(booking.tool.function)
        answer = await trip.ask("Book two nights.", tools=[known], key="job-17")
        assert answer.text == "Heard: 2 nights in Rome"
        assert len({*booking.booked}) == 1
        assert len(booking.booked) == 2


async def test_a_started_call_nobody_can_ask_about_is_open(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await start_and_leave(trip, booking)
        with pytest.raises(antiphon.CallOpen) as raised:
            await trip.ask("Book two nights.", tools=[booking.tool], key="job-17")
        assert raised.value.effect_key == booking.booked[0]
        (call,) = await trip.open_calls()
        assert (call.name, call.id) == ("book", raised.value.call_id)
        await trip.finish(call.id, "booked by hand")
        assert await trip.open_calls() == ()
        answer = await trip.ask("Book two nights.", tools=[booking.tool], key="job-17")
        assert answer.text == "Heard: booked by hand"
        assert len(booking.booked) == 1


async def test_a_turn_behind_a_call_that_no_run_works_on_is_refused(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await start_and_leave(trip, booking)
        before = await trip.history()
        with pytest.raises(antiphon.CallOpen) as raised:
            await trip.ask("Hello.")
        assert (raised.value.call_id, raised.value.effect_key) == (
            (await trip.open_calls())[0].id, booking.booked[0]
        )  # fmt: skip
        assert await trip.history() == before
        known = antiphon.tool(effect=True, resolve=lambda _key: "booked")(booking.tool.function)
        await trip.ask("Book two nights.", tools=[known], key="job-17")
        assert (await trip.ask("Hello.")).text == "Heard: Hello."


async def test_a_turn_behind_a_call_that_a_run_here_works_on_waits(lab: Lab, booking: Booking):
    slow = SlowBooking()
    async with lab.open() as me, lab.open() as beside:
        trips = [await one.conversation("trip") for one in (me, beside)]
        task = asyncio.create_task(
            trips[0].ask("Book two nights.", tools=[antiphon.tool(slow.book)])
        )
        await slow.running.wait()
        asked = [asyncio.create_task(trip.ask("Hello.")) for trip in trips]
        done, _ = await asyncio.wait(asked, timeout=0.3)
        assert not done
        slow.go_on.set()
        assert (await task).text == "Heard: 2 nights in Rome"
        assert {(await one).text for one in asked} == {"Heard: Hello."}


async def test_a_turn_begun_at_a_result_is_answered_behind_the_run(lab: Lab, booking: Booking):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        other = aiter(trip.run("Hello."))
        async for event in trip.run("Book two nights.", tools=[booking.tool]):
            if isinstance(event, antiphon.ToolDone):
                await anext(other)
        _ = [event async for event in other]
        answered = [one.answer.text for one in await trip.history() if hasattr(one, "answer")]
        assert answered == ["Sure.", "Heard: 2 nights in Rome", "Heard: Hello."]


async def test_an_owner_abandons_the_call_of_a_member_that_is_gone(lab: Lab, booking: Booking):
    async with lab.open() as me:
        mine = await me.conversation("trip")
        async with lab.open("bob") as bob:
            await mine.grant(bob.key)
            assert await mine.sync()
            await start_and_leave(await bob.get(mine.id), booking)
            assert await bob.sync()
        waiting = asyncio.create_task(mine.ask("And me?"))
        assert await mine.open_calls() == ()  # it is not ours to execute
        while not (calls := await all_calls(mine)):  # noqa: ASYNC110  # in sync as it is
            await asyncio.sleep(0)
        with pytest.raises(NotAllowed, match="its executor"):
            await mine.finish(calls[0].id, "booked by hand")
        await mine.abandon(calls[0].id)
        # What waited is asked anew, behind the result that closed the call.
        assert (await waiting).text.startswith("Heard:")


async def test_a_call_is_closed_on_the_branch_of_its_handle(lab: Lab):
    calls = [ToolCall("1", "book", "{}")]
    await lab.start_host(lambda asked: words("Hm.") if asked.said == "Hello." else calls)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        hello = await trip.ask("Hello.")
        branches = [trip.at(hello.entry) for _ in range(2)]
        for branch in branches:
            await start_and_leave(branch, Booking(), key=None)
        with pytest.raises(ArgumentInvalid, match="several branches have an open call 1"):
            await trip.at(hello.entry).finish("1", "which?")
        await branches[1].finish("1", "the second")
        done = [
            [e.result for e in await branch.history() if isinstance(e, antiphon.ToolDone)]
            for branch in branches
        ]
        assert done == [[], ["the second"]]
        await trip.at(hello.entry).abandon("1")  # one is left
        assert await trip.open_calls() == ()


async def test_a_call_is_closed_by_those_alone_who_may(lab: Lab, booking: Booking):
    async with lab.open() as me, lab.open("bob") as bob:
        mine = await me.conversation("trip")
        await mine.grant(bob.key)
        assert await mine.sync()
        theirs = await bob.get(mine.id)
        await start_and_leave(mine, booking)
        (call,) = await mine.open_calls()
        while not await all_calls(theirs):  # noqa: ASYNC110  # in sync as it is
            await asyncio.sleep(0)
        for closing in (theirs.finish(call.id, "forged"), theirs.abandon(call.id)):
            with pytest.raises(NotAllowed, match="its requester and owners may abandon it"):
                await closing
        assert await mine.open_calls() == (call,)


async def all_calls(trip) -> list[antiphon.Call]:  # type: ignore[no-untyped-def]
    """Return the calls of the branch."""
    return [e.call for e in await trip.history() if isinstance(e, antiphon.ToolCalled)]


async def test_two_agents_of_one_folder_run_a_tool_once(lab: Lab, booking: Booking):
    async with lab.open(label="one") as one, lab.open(label="other") as other:
        trips = await asyncio.gather(one.conversation("trip"), other.conversation("trip"))
        assert trips[0].id == trips[1].id
        events = trips[1].events()
        await trips[0].say("Good morning.")
        event = await anext(one async for one in events if isinstance(one, antiphon.Said))
        assert (event.text, event.label) == ("Good morning.", "one")
        answers = await asyncio.gather(
            *(trip.ask("Book two nights.", tools=[booking.tool], key="job-17") for trip in trips)
        )
        assert {answer.text for answer in answers} == {"Heard: 2 nights in Rome"}
        assert len({answer.entry for answer in answers}) == 1
        assert (len(booking.booked), booking.asked) == (1, 2)


async def test_processes_of_one_folder_ask_at_once_and_hand_over(lab: Lab, booking: Booking):
    async with lab.open() as other:
        async with lab.open() as serving:
            trips = [await one.conversation("trip") for one in (serving, other)]
            asked = [asyncio.create_task(trip.ask(f"Ask {n}.")) for n, trip in enumerate(trips)]
            assert [(await one).text for one in asked] == ["Heard: Ask 0.", "Heard: Ask 1."]
            assert await serving.sync()
            assert len(await trips[1].branches()) == 1
        assert (await trips[1].ask("Alone?")).text == "Heard: Alone?"
