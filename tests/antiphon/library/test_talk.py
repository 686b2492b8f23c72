"""Asking, saying, branching and reading, in both forms."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.errors import ReplicaClosed
from replica.ids import short
from replica.io import HostMissing, import_entries
from replica.io.requests.answer_errors import AnswerOverdue
from replica.refusals import ArgumentInvalid, NotAllowed
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.antiphon.library.conftest import Lab
from tests.support.writers import Writer


async def test_one_call_asks_and_answers(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip", system="Be brief.")
        answer = await trip.ask("Capital of France?")
        assert answer.text == "You said: Capital of France?"
        assert answer.usage.output_tokens == 5
        texts = [
            getattr(event, "text", None) or event.answer.text for event in await trip.history()
        ]
        assert texts == ["Be brief.", "Capital of France?", "You said: Capital of France?"]
        said = [event for event in await trip.history() if isinstance(event, antiphon.Said)]
        assert [event.is_system for event in said] == [True, False]


async def test_the_host_that_a_conversation_is_granted_to_is_logged(
    talking: Lab, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="antiphon")
    assert talking.hub is not None
    (host,) = talking.hub.driver.hub.connected.hosts(lambda _key: True)
    async with talking.open() as me:
        await me.conversation("trip")
    (said,) = (line for line in caplog.messages if "granted to a host" in line)
    assert f"key={short(host.key)}" in said
    assert "reason=vouched" in said


async def test_a_name_stands_for_one_conversation_after_a_restart_and_on_another_device(
    talking: Lab,
):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        await trip.ask("One?")
        assert await trip.title() == "trip"
        assert (await me.conversation("trip")).id == trip.id
        assert (await me.conversation("other")).id != trip.id
        assert await me.sync()
    async with talking.open() as me:
        assert (await me.conversation("trip")).id == trip.id
    device = talking.folder / "device"
    device.mkdir()
    (device / "identity.key").write_bytes((talking.folder / "me/identity.key").read_bytes())
    (device / "identity.key").chmod(0o600)
    async with talking.open("device") as me:
        again = await me.conversation("trip")
        assert again.id == trip.id
        assert len(await again.history()) == 2
        assert len(await me.conversations()) == 2


async def test_a_title_of_another_member_is_not_taken_for_ours(talking: Lab):
    async with talking.open() as me, talking.open("other") as other:
        theirs = await other.conversation("trip")
        await theirs.grant(me.key)
        assert await theirs.sync()
        await (await me.get(theirs.id)).say("hello")
        assert (await me.conversation("trip")).id != theirs.id


async def test_a_renamed_conversation_is_found_by_its_new_name(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        await trip.rename("journey")
        assert (await me.conversation("journey")).id == trip.id
        assert (await me.conversation("trip")).id != trip.id


async def test_a_run_yields_its_drafts_before_its_answer(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Two words?")
        with pytest.raises(antiphon.RunUnfinished):
            _ = run.answer
        drafted, kinds = "", []
        async for event in run:
            if not isinstance(event, antiphon.SyncChanged):  # the hub's answer comes at any time
                kinds.append(type(event).__name__)
            match event:
                case antiphon.Draft(text):
                    drafted += text
                case antiphon.Answered(answer):
                    assert drafted == answer.text
                case _:
                    pass
        assert run.answer.text == drafted == "You said: Two words?"
        assert kinds[:2] == ["Said", "Asked"]
        assert kinds[-1] == "Answered"
        assert {"Sealed", "Draft"} <= {*kinds}


async def test_an_answer_is_followed_by_a_branch(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        first = await trip.ask("One?")
        second = await trip.ask("Two?")
        run = trip.at(first.entry).run("Another way?")
        events = [event async for event in run]
        forks = [event for event in events if isinstance(event, antiphon.Forked)]
        assert len(forks) == 1
        assert len(await trip.branches()) == 2
        # The handle stays on its branch, until it switches.
        assert (await trip.history())[-1].answer.entry == second.entry
        await trip.switch(run.answer.entry)
        assert (await trip.history())[-1].answer.text == "You said: Another way?"
        await trip.switch(forks[0].theirs)
        assert (await trip.history())[-1].answer.entry == second.entry
        branches = await trip.branches()
        await trip.switch(branches[-1])
        assert (await trip.history())[-1].answer.entry == run.answer.entry


async def test_a_program_that_is_started_again_goes_on_at_its_branches(talking: Lab):
    async def begin(trip: Any) -> Any:
        """Ask what was asked before the crash; return a handle of the branch."""
        first = await trip.ask("A", key="a")
        await trip.ask("B", key="b")
        other = trip.at(first.entry)
        await other.ask("X", key="x")
        return other

    async with talking.open() as me:
        await begin(await me.conversation("trip"))
    async with talking.open() as me:
        trip = await me.conversation("trip")
        other = await begin(trip)
        await other.ask("Y", key="y")
        await trip.ask("D", key="d")
        for handle, words in ((other, "A X Y"), (trip, "A B D")):
            said = [e.text for e in await handle.history() if isinstance(e, antiphon.Said)]
            assert said == words.split()
        assert len(await trip.branches()) == 2


async def test_a_message_that_is_withdrawn_is_in_no_answers_context(talking: Lab):
    async with talking.open() as me, talking.open("bob") as bob:
        trip = await me.conversation("trip")
        theirs = await bob.join(await trip.invite("bob", role="writer"))
        answered = await trip.ask("Hello.")
        note = await trip.say("Never mind.")
        assert await trip.sync()
        assert await theirs.sync()
        with pytest.raises(NotAllowed, match="by its author or by an owner"):
            await theirs.cancel(note)
        await trip.cancel(note)
        said = [one for one in await trip.history() if isinstance(one, antiphon.Said)]
        assert [one.text for one in said] == ["Hello."]
        assert (await trip.ask("What did I say?")).text == "You said: What did I say?"
        with pytest.raises(ArgumentInvalid, match="in the context of an answer"):
            await trip.cancel(said[0].entry)
        with pytest.raises(ArgumentInvalid, match="is no message"):
            await trip.cancel(answered.entry)


async def test_a_wrong_id_or_name_is_refused_and_the_link_stays(talking: Lab):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        wrong: Any = (b"x", trip.id.hex(), None)
        for one in wrong:
            with pytest.raises(ArgumentInvalid, match="no id of 32 bytes"):
                await me.get(one)
            with pytest.raises(ArgumentInvalid, match="no id of 32 bytes"):
                await _at(trip, one)
            with pytest.raises(ArgumentInvalid, match="no id of 32 bytes"):
                await trip.switch(one)
        await trip.ask("Hello.")  # else there is no last turn, which None stands for
        no_ids: Any = ("x", b"", "", 0)
        for one in no_ids:
            with pytest.raises(ArgumentInvalid, match=f"the request is {one!r}, and no id"):
                await trip.cancel(one)
        for change in (trip.grant, trip.remove):
            with pytest.raises(ArgumentInvalid, match="the key is 'x', and no id"):
                await change("x")
        with pytest.raises(ArgumentInvalid, match="the title is 3, and no text"):
            await trip.rename(3)
        for name in (None, "\ud800"):
            with pytest.raises(ArgumentInvalid, match="the name"):
                await me.conversation(name)
        with pytest.raises(ArgumentInvalid, match="the system text is 3"):
            await me.conversation("other", system=3)
        later: Any = "soon"
        for wait in (me.sync, trip.sync, partial(me.join, "code")):
            with pytest.raises(ArgumentInvalid, match="timeout_s is 'soon', not a number"):
                await wait(timeout_s=later)
        with pytest.raises(ArgumentInvalid, match="timeout_s is 'soon', not a number"):
            async with aio.join("code", talking.folder / "joined", timeout_s=later):
                pass
        assert not (talking.folder / "joined").exists()
        assert len(await me.conversations()) == 1
        assert (await trip.ask("Still here?")).text == "You said: Still here?"


async def _at(trip: Any, entry: Any) -> None:
    await trip.at(entry).ask("hello")


async def test_two_that_ask_at_once_queue(talking: Lab):
    async with talking.shared() as (_, mine, theirs):
        answers = await asyncio.gather(mine.ask("One?"), theirs.ask("Two?"))
        assert {a.text for a in answers} == {"You said: One?", "You said: Two?"}
        assert await mine.sync()
        assert len(await mine.branches()) == 1
        assert len(await mine.history()) == 4


async def test_the_events_of_a_conversation_name_who_spoke(talking: Lab):
    async with talking.shared() as (bob, mine, theirs):

        async def first_words() -> antiphon.Said:
            async for event in mine.events():
                if isinstance(event, antiphon.Said):
                    return event
            raise AssertionError

        heard = asyncio.create_task(first_words())
        for number in range(1000):
            await theirs.say(f"Hello {number}.")
            if heard.done():
                break
        said = await heard
        assert (said.who, said.text[:5]) == (bob.key, "Hello")


async def test_offline_one_goes_on_writing(lab: Lab):
    lab.hub = None
    async with lab.open(hub=None) as me:
        trip = await me.conversation("trip", system="Be brief.")
        await trip.say("Hello.")
        assert len(await trip.history()) == 2
        with pytest.raises(antiphon.NoHost):
            await trip.ask("Capital?")


async def test_without_a_host_an_absent_hub_is_named(lab: Lab):
    assert lab.hub is not None
    await lab.hub.stop()
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.NoHost, match=r"the hub is away \[HUB_UNREACHABLE\]"):
            await trip.ask("Capital?")


async def test_a_hub_that_vouches_for_no_host_gives_none(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.NoHost):
            await trip.ask("Capital?")
        host = await lab.start_host()
        # A new link names the host.
        assert host.replica.public
    async with lab.open() as me:
        assert (await (await me.conversation("trip")).ask("Now?")).text == "You said: Now?"


async def test_a_host_that_is_away_is_waited_for_no_longer_than_said(lab: Lab):
    async with lab.open(host="ab" * 32) as me:
        trip = await me.conversation("trip")
        assert await trip.sync()
        with pytest.raises(AnswerOverdue) as overdue:
            await trip.ask("Anyone?", timeout_s=0.05)
        assert str(overdue.value) == "no news of the answer for 0.1 s"
        assert overdue.value.__cause__ is None
        await trip.cancel(overdue.value.request)  # the request is in the log


async def test_a_hub_that_is_gone_or_another_ends_the_wait(lab: Lab):
    async with lab.open(host="ab" * 32) as me:
        trip = await me.conversation("trip")
        assert lab.hub is not None and await me.sync()
        await lab.hub.stop()
        with pytest.raises(AnswerOverdue, match=r"the hub is away \[HUB_UNREACHABLE\]") as overdue:
            await trip.ask("Anyone?", timeout_s=0.3)
        assert isinstance(overdue.value.__cause__, antiphon.HubUnreachable)
        assert overdue.value.next_step.startswith("Start the hub or check its address;")
        assert "`cancel(request)`, ends it" in overdue.value.next_step
        await trip.cancel(overdue.value.request)
        again = HubConfig(data_dir=lab.folder / "again", listen=lab.hub.address)
        lab.hub = await start(again)  # at the same address, and with a key of its own
        lab.stack.push_async_callback(lab.hub.stop)
        with pytest.raises(antiphon.AntiphonError) as refused:
            await trip.ask("Anyone?")
        assert refused.value.reason == "PEER_IDENTITY_CHANGED"


def test_leaving_ends_the_calls_of_other_threads(tmp_path: Path):
    with ThreadPoolExecutor() as threads:
        with antiphon.open(tmp_path, host="ab" * 32) as me:
            trip = me.conversation("trip")
            asked = threads.submit(trip.ask, "Anyone?")
            while not trip.history():  # until the question is in the log
                pass
        with pytest.raises(ReplicaClosed):
            asked.result()


async def test_a_key_without_a_role_reads_an_imported_conversation_and_can_not_ask(tmp_path: Path):
    writer = Writer(5)
    async with aio.open(tmp_path) as me:
        imported = await import_entries(me._core, (writer.genesis(),))
        trip = await me.get(imported)
        assert await trip.history() == ()
        with pytest.raises(HostMissing):
            await trip.ask("Anyone?")


SYNCS = 40


async def test_a_sync_brings_what_another_member_has_synced_before(lab: Lab):
    async with lab.open() as ada, lab.open("bob") as bob:
        hers = await ada.conversation("plan")
        await hers.grant(bob.key)
        assert await hers.sync()
        his = await bob.get(hers.id)
        for number in range(SYNCS):
            said = await his.say(str(number))
            assert await his.sync()
            assert await hers.sync()
            assert (await hers.history())[-1].entry == said
