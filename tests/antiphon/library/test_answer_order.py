"""A run shows an answer in order, whatever is in memory first."""

import asyncio
from pathlib import Path

import antiphon
from antiphon.library import events as e
from antiphon.library.answer_order import AnswerOrder
from replica.ids import EntryId, PublicKey
from replica.log import Usage
from tests.antiphon.library.conftest import Lab
from tests.support.files import write_locked
from tests.support.scripted_host import scripted_host

ONE, TWO = EntryId(b"one"), EntryId(b"two")
SAID = e.Said(PublicKey(b"k"), "Hi.")
SEALED, CALLED = e.Sealed(ONE), e.ToolCalled(e.Call("1", "book"))
DRAFTS = [e.Draft("a", ONE), e.Draft("b", ONE)]


def answered(request: EntryId) -> e.Answered:
    return e.Answered(e.Answer("ab", Usage(), EntryId(b"answer"), request))


class Shown:
    """An order, and what was shown in it."""

    def __init__(self) -> None:
        self.order = AnswerOrder()
        self.events: list[e.Event] = []

    def add(self, drafts: list[e.Draft], *others: e.Event, is_last: bool = False) -> "Shown":
        for one in others:
            self.order.note(one)
        self.events += self.order.merged(ONE, drafts, others, is_last=is_last)
        return self


def test_drafts_wait_for_their_sealed():
    shown = Shown().add(DRAFTS[:1], SAID)
    assert shown.events == [SAID]
    assert shown.add([], e.Sealed(TWO)).events == [SAID, e.Sealed(TWO)]
    shown.add(DRAFTS[1:], SEALED)
    assert shown.events == [SAID, e.Sealed(TWO), SEALED, *DRAFTS]


def test_an_answer_and_its_calls_come_behind_the_last_draft():
    shown = Shown().add(DRAFTS[:1], SEALED)
    shown.add(DRAFTS[1:], SAID, CALLED, answered(ONE), CALLED, is_last=True)
    assert shown.events == [SEALED, DRAFTS[0], SAID, DRAFTS[1], CALLED, answered(ONE), CALLED]


def test_a_refusal_is_the_end_of_an_answer_too_and_needs_no_sealed():
    refused = e.Refused("HOST_FAILED", "not now", ONE)
    assert Shown().add(DRAFTS, answered(TWO), refused).events == [answered(TWO), refused]
    assert Shown().add(DRAFTS, refused, is_last=True).events == [*DRAFTS, refused]


def test_an_answer_that_had_begun_needs_no_sealed():
    shown = Shown()
    assert not shown.order.has_begun(ONE)
    shown.order.note_sealed(ONE)
    assert shown.order.has_begun(ONE)
    assert shown.add(DRAFTS).events == DRAFTS


def test_no_draft_comes_behind_the_whole_answer():
    shown = Shown().add([], SEALED, answered(ONE))
    shown.add(DRAFTS, SAID, is_last=True)
    assert shown.events == [SEALED, answered(ONE), SAID]


async def test_a_run_shows_a_draft_behind_its_sealed_though_it_is_in_memory_before(tmp_path: Path):
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        hub = await lab.start_hub()
        async with scripted_host(tmp_path / "host", hub.address):
            me = await lab.stack.enter_async_context(lab.open())
            trip = await me.conversation("trip")
            await trip.ask("Where to?")
        events = aiter(trip.run("And then?"))
        while not isinstance(asked := await anext(events), antiphon.Asked):
            pass
        held = me._core.shelf[trip.id]
        has_begun = asyncio.Event()

        async def until_unlocked(index: int) -> None:
            if index > 0:
                await has_begun.wait()

        async with write_locked(me._core.store.holding.own):
            await lab.start_host(pace=until_unlocked)
            following = asyncio.ensure_future(anext(events))
            # No event tells of the draft and the seal, which are in memory and not durable.
            while asked.entry not in held.drafts or asked.entry not in held.order.seal_of:  # noqa: ASYNC110
                await asyncio.sleep(0)
            has_begun.set()
        shown = [await following, *[event async for event in events]]
        kinds = [k for k in (type(one).__name__ for one in shown) if k in ORDERED]
        assert kinds == ["Sealed", *["Draft"] * kinds.count("Draft"), "Answered"]
        assert (
            "".join(one.text for one in shown if isinstance(one, e.Draft)) == "You said: And then?"
        )


ORDERED = {"Sealed", "Draft", "Discarded", "Answered"}
