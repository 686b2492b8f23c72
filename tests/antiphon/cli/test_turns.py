"""Turns as a library: progress, deltas, new runs, timeouts, refusals, places."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.common import turn
from antiphon.cli.common.turn import options_for
from replica.conversation import ClockInvalid
from replica.conversation.chosen import place_at
from replica.conversation.drafts import Draft, DraftStream, extend_digest
from replica.conversation.place import Place, newest_place, place_on_branch
from replica.core import pauses
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io import HostMissing, answers, cancels, choose_host, rpc, turns
from replica.io.driver.replica import Replica
from replica.io.requests.answer_errors import AnswerNotBegun, AnswerOverdue
from replica.io.requests.answers import Delta, Discarded, Finished, NotStored, NotTaken, Prefilling
from replica.io.requests.turns import RequestOptions
from replica.io.serving.rpc import now_ms
from replica.link.events import EntryFailed
from replica.log.body import (
    FinishReason,
    Genesis,
    Grant,
    LogitBias,
    Member,
    Role,
    Sampling,
    Text,
    text_of,
)
from replica.log.entry import Conflict
from replica.refusals import ArgumentInvalid, ConversationUnknown, PeerIdentityChanged, StoreFull
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.callers import until
from tests.support.files import full_disk
from tests.support.scripted_host import ScriptedHost, no_pause, scripted_host
from tests.support.stopped import stop


@dataclass(slots=True)
class Scene:
    """A hub, a scripted host that can be delayed, and a replica with a conversation."""

    folder: Path
    stack: AsyncExitStack
    hub: HubServer
    host: ScriptedHost
    replica: Replica
    conversation: ConversationId
    gate: asyncio.Event
    reached: asyncio.Event

    @property
    def options(self) -> RequestOptions:
        return RequestOptions(self.host.replica.public, Sampling(seed=1))

    @property
    def here(self) -> Place:
        return newest_place(self.replica.shelf[self.conversation])

    async def ask(
        self, text: str | None, place: Place | None = None, silence_max_s: float | None = 20.0
    ) -> list[answers.TurnEvent]:
        events = turns.ask(
            self.replica,
            self.conversation,
            text,
            place or self.here,
            self.options,
            silence_max_s=silence_max_s,
        )
        return [event async for event in events]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    gate, reached = asyncio.Event(), asyncio.Event()

    async def wait_at_second_token(index: int) -> None:
        await no_pause(index)
        if index == 2:
            reached.set()
            await gate.wait()

    gate.set()
    async with AsyncExitStack() as stack:
        hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
        host = await stack.enter_async_context(
            scripted_host(tmp_path / "host", hub.address, pace=wait_at_second_token)
        )
        replica = await stack.enter_async_context(
            Replica.open(tmp_path / "me" / "log.db", Ed25519PrivateKey.generate(), hub.address)
        )
        conversation = await replica.create(Genesis((replica.public,)))
        genesis = replica.shelf[conversation].log.genesis
        assert genesis is not None
        await replica.append(
            conversation, Member(Grant(host.replica.public, Role.HOST)), parents=(genesis.id,)
        )
        made = Scene(tmp_path, stack, hub, host, replica, conversation, gate, reached)
        yield made
        gate.set()
    await made.hub.stop()


def text_shown(events: list[answers.TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_a_request_has_all_sampling_defaults_of_its_conversation(scene: Scene) -> None:
    defaults = Sampling(0.7, 40, seed=3, logit_bias=(LogitBias(5, -1.5), LogitBias(9, 2.0)))
    created = await scene.replica.create(Genesis((scene.replica.public,), defaults))
    grant = Member(Grant(scene.host.replica.public, Role.HOST))
    await scene.replica.append(created, grant, parents=(EntryId(created),))
    held = scene.replica.shelf[created]
    options = options_for(scene.replica, held, changes={"temperature": 0.2})
    assert options.sampling == replace(defaults, temperature=0.2)


async def test_the_streamed_answer_is_the_logged_one(scene: Scene) -> None:
    events = await scene.ask("hello there")
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert text_shown(events) == text_of(finished.generation.parts) == "You said: hello there"
    assert isinstance(events[0], answers.Asked)


async def test_a_full_disk_here_is_not_said_to_be_the_hubs(scene: Scene) -> None:
    scene.gate.clear()
    failed = asyncio.Event()
    scene.replica.listen(lambda event: failed.set() if isinstance(event, EntryFailed) else None)
    asking = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    async with full_disk(scene.replica.store):
        scene.gate.set()
        await failed.wait()
    kinds = [type(event) for event in await asking]
    assert (NotStored in kinds, NotTaken in kinds, kinds[-1]) == (True, False, Finished)


async def test_who_gives_up_with_a_full_disk_is_told_of_it(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three", silence_max_s=0.5))
    await scene.reached.wait()
    async with full_disk(scene.replica.store):
        scene.gate.set()
        with pytest.raises(StoreFull):
            await asking


async def test_progress_comes_before_the_first_word(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("hello there"))
    await scene.reached.wait()
    scene.gate.set()
    kinds = [type(event) for event in await asking]
    if Prefilling in kinds:  # frames may arrive together; then only the newest counts
        assert kinds.index(Prefilling) < kinds.index(Delta)


async def test_a_late_follower_gets_the_whole_answer(scene: Scene) -> None:
    asked = (await scene.ask("hello"))[0]
    assert isinstance(asked, answers.Asked)
    again = [
        e async for e in answers.follow_answer(scene.replica, scene.conversation, asked.request)
    ]
    assert text_shown(again) == "You said: hello"
    assert isinstance(again[-1], Finished)


async def test_a_follower_that_joins_in_the_middle_misses_nothing(scene: Scene) -> None:
    scene.gate.clear()
    first = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    (request,) = scene.replica.shelf[scene.conversation].order.requests
    second = asyncio.create_task(_follow(scene, request))
    await asyncio.sleep(0)
    scene.gate.set()
    assert text_shown(await first) == text_shown(await second) == "You said: one two three"


async def _follow(scene: Scene, request: EntryId) -> list[answers.TurnEvent]:
    following = answers.follow_answer(scene.replica, scene.conversation, request)
    return [event async for event in following]


async def test_a_cancelled_answer_keeps_the_shown_text(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    (request,) = scene.replica.shelf[scene.conversation].order.requests
    await cancels.cancel(scene.replica, scene.conversation, request)
    order = scene.host.replica.shelf[scene.conversation].order
    await scene.host.replica.wait_for(lambda: order.is_cancelled(request), 10.0)
    scene.gate.set()
    events = await asking
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.generation.finish_reason == FinishReason.CANCELLED
    assert text_shown(events) == text_of(finished.generation.parts) == "You said:"


async def test_a_new_run_discards_the_shown_text(scene: Scene) -> None:
    held = scene.replica.shelf[scene.conversation]
    request = EntryId(b"r" * 32)
    watch = answers.AnswerWatch(scene.replica, held.id, request)
    events: list[answers.TurnEvent] = []
    for run, words in ((1, (b"one ", b"two")), (2, (b"uno ",))):
        stream = DraftStream(held.id, request, run)
        for number, data in enumerate(words):
            digest = extend_digest(stream.digest, (number,))
            frame = Draft(held.id, request, run, number, (number,), stream.byte_count, data, digest)
            assert stream.receive(frame)
            events += watch._from_draft(stream)
    watch.stop()
    assert events == [Delta("one ", 1), Delta("two", 2), Discarded(), Delta("uno ", 1)]


async def test_silence_ends_in_a_typed_error(scene: Scene) -> None:
    scene.gate.clear()
    events = turns.ask(
        scene.replica,
        scene.conversation,
        "one two three",
        scene.here,
        scene.options,
        silence_max_s=0.2,
    )
    with pytest.raises(AnswerOverdue):
        async for _ in events:
            pass


async def test_no_answer_is_waited_for_in_what_is_deleted_here(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three", silence_max_s=None))
    await scene.reached.wait()
    await scene.replica.delete(scene.conversation)
    with pytest.raises(ConversationUnknown):
        async with asyncio.timeout(10):
            await asking


async def test_while_this_process_is_stopped_nobody_else_is_silent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by SIGSTOP: what came meanwhile is read behind it."""
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three", silence_max_s=2.0))
    await scene.reached.wait()
    scene.gate.set()
    stop(monkeypatch, 2.0 + 2 * answers.STOPPED_S, answers)
    assert isinstance((await asking)[-1], Finished)


async def test_a_clock_before_1970_is_named_also_with_a_time_to_begin_by(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (turn, rpc):
        monkeypatch.setattr(module, "now_ms", lambda: -1_000_000)
    held = scene.replica.shelf[scene.conversation]
    options = options_for(scene.replica, held, changes={"answer_within_s": 20.0})
    with pytest.raises(ClockInvalid):
        await turns.say_and_request(scene.replica, held.id, (Text("Hi"),), scene.here, options)


async def test_an_answer_that_has_begun_in_time_is_waited_for(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    order = scene.replica.shelf[scene.conversation].order
    await until(lambda: bool(order.seal_of))  # the host generates before its seal arrives here
    (first,) = order.seal_of
    second = await turns.say_and_request(
        scene.replica, scene.conversation, (Text("four"),), scene.here, scene.options
    )
    with pytest.raises(AnswerNotBegun):
        await follow_until(scene, second.request, begin_by_ms=now_ms() - answers.BEGIN_GRACE_MS - 1)
    scene.gate.set()
    assert isinstance((await follow_until(scene, first, begin_by_ms=1))[-1], Finished)
    await asking


async def follow_until(
    scene: Scene, request: EntryId, *, begin_by_ms: int
) -> list[answers.TurnEvent]:
    following = answers.follow_answer(
        scene.replica, scene.conversation, request, begin_by_ms=begin_by_ms
    )
    return [event async for event in following]


async def test_a_silence_goes_on_while_others_are_heard(scene: Scene) -> None:
    """Another conversation, and words beside the request, are no news of its answer."""
    genesis = Genesis((scene.replica.public,))
    elsewhere = await scene.replica.create(genesis)

    async def talk(conversation: ConversationId) -> None:
        while True:
            place = newest_place(scene.replica.shelf[conversation])
            await turns.say(scene.replica, conversation, (Text("And another thing."),), place)

    scene.gate.clear()
    talking = [asyncio.create_task(talk(one)) for one in (elsewhere, scene.conversation)]
    try:
        with pytest.raises(AnswerOverdue):
            async with asyncio.timeout(10):
                await scene.ask("one two three", silence_max_s=0.3)
    finally:
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


async def test_a_silence_goes_on_while_the_link_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses.Pauses, "next_s", lambda _self: 0.05)
    scene.gate.clear()
    await scene.hub.stop()
    with pytest.raises(AnswerOverdue):
        async with asyncio.timeout(10):
            await scene.ask("one two three", silence_max_s=1.0)


async def test_a_turn_ahead_that_goes_on_is_news(scene: Scene) -> None:
    scene.gate.clear()
    first = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    to_nobody = replace(scene.options, host=PublicKey(b"h" * 32))
    second = await turns.say_and_request(
        scene.replica, scene.conversation, (Text("four"),), scene.here, to_nobody
    )
    watch = answers.AnswerWatch(scene.replica, scene.conversation, second.request)
    await watch.news()
    await watch.wait(0.5, 0.4)
    scene.gate.set()
    await first
    await watch.news()
    await watch.wait(0.5, 0.4)
    with pytest.raises(AnswerOverdue):
        while not await watch.news():
            await watch.wait(0.5)
    watch.stop()


async def test_a_hub_of_another_key_ends_the_wait(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three", silence_max_s=None))
    await scene.reached.wait()
    address = scene.hub.address
    await scene.hub.stop()
    scene.hub = await start(HubConfig(data_dir=scene.folder / "other", listen=address))
    async with asyncio.timeout(10):
        with pytest.raises(PeerIdentityChanged):
            await asking


async def test_a_refusal_by_the_hub_is_raised(scene: Scene) -> None:
    await scene.ask("hello")
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three"))
    scene.reached.clear()
    await scene.reached.wait()
    await scene.replica.calls().delete(scene.conversation)
    with pytest.raises(AntiphonError) as refused:
        await asking
    assert refused.value.reason == "CONVERSATION_DELETED"


async def test_the_loss_of_the_hub_is_reported_and_survived(scene: Scene) -> None:
    scene.gate.clear()
    asking = asyncio.create_task(scene.ask("one two three"))
    await scene.reached.wait()
    address = scene.hub.address
    await scene.hub.stop()
    await scene.replica.wait_for(lambda: not scene.replica.hub.is_linked, 10.0)
    scene.gate.set()
    scene.hub = await start(HubConfig(data_dir=scene.folder / "hub", listen=address))
    events = await asking
    kinds = [type(event) for event in events]
    assert answers.LinkLost in kinds
    assert kinds.index(answers.LinkLost) < len(kinds) - 1 - kinds[::-1].index(answers.LinkBack)
    at = max((i for i, e in enumerate(events) if isinstance(e, Discarded)), default=-1)
    assert text_shown(events[at + 1 :]) == "You said: one two three"


async def test_a_host_is_chosen_among_members(scene: Scene) -> None:
    held = scene.replica.shelf[scene.conversation]
    host = scene.host.replica.public
    assert choose_host(held, ()) == host
    assert choose_host(held, (scene.replica.public, host)) == host
    with pytest.raises(HostMissing) as refused:
        choose_host(held, (), scene.replica.public)
    assert (refused.value.__doc__ or "").startswith("The host that is asked for is no host")
    assert "antiphon members" in refused.value.next_step


async def test_places_follow_answers_messages_seals_and_the_genesis(scene: Scene) -> None:
    first = (await scene.ask("one"))[0], (await scene.ask("two"))[0]
    held = scene.replica.shelf[scene.conversation]
    one, two = first
    assert isinstance(one, answers.Asked)
    assert isinstance(two, answers.Asked)
    assert one.message is not None
    seal_one, seal_two = (held.order.seal_of[a.request] for a in (one, two))
    answer_one = held.order.nodes[seal_one].generation
    assert answer_one is not None
    genesis = held.log.genesis
    assert genesis is not None
    assert place_at(held, genesis.id) == Place((genesis.id,), None, Conflict.FORK)
    assert place_at(held, seal_one) == Place((answer_one,), seal_one, Conflict.FORK)
    assert place_at(held, answer_one) == Place((answer_one,), seal_one, Conflict.FORK)
    assert place_at(held, one.message) == Place((one.message,), None, Conflict.FORK)
    assert place_on_branch(held, one.request).basis == seal_two
    assert newest_place(held) == place_on_branch(held, two.request)
    member = next(i for i, e in held.log.entries.items() if e.header.track == 3)
    with pytest.raises(ArgumentInvalid):
        place_at(held, member)


async def test_an_unanswered_request_is_followed_where_it_stands(scene: Scene) -> None:
    await scene.ask("one")
    scene.gate.clear()
    place = scene.here
    asked = await turns.say_and_request(scene.replica, scene.conversation, (), place, scene.options)
    held = scene.replica.shelf[scene.conversation]
    assert place_on_branch(held, asked.request) == Place((asked.request,), place.basis)
    scene.gate.set()
    async for _ in answers.follow_answer(scene.replica, scene.conversation, asked.request):
        pass


async def test_the_same_context_gives_the_same_place_for_a_second_answer(scene: Scene) -> None:
    asked = (await scene.ask("one"))[0]
    assert isinstance(asked, answers.Asked)
    assert asked.message is not None
    held = scene.replica.shelf[scene.conversation]
    await scene.ask(None, place_at(held, asked.message))
    assert len(held.order.children(None)) == 2
    assert not held.order.void
