"""Pages of a real host: where the current context is, before and after what may happen to it."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from antiphon.v1 import host_pb2 as pb
from model_host.generation.planning import Branch
from model_host.generation.prospect import gather_current
from model_host.io.calls import pages_call
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId
from replica.io.calls.host_calls import HostCalls
from replica.io.calls.host_views import ContextPages
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import public_key
from replica.order import SealNode
from replica.refusals import ArgumentInvalid, ConversationUnknown, RateLimited
from tests.model_host.io.served_host import ServedHost
from tests.model_host.io.two_profiles import two_profiles
from tests.support.talk import Talk, key_of


def sums(pages: ContextPages) -> tuple[int, int, int, int]:
    """Return the tokens in memory, shared, in a checkpoint alone, and to be computed."""
    entries = pages.entries
    return (
        sum(entry.cached_tokens for entry in entries),
        sum(entry.shared_tokens for entry in entries),
        sum(entry.stored_tokens for entry in entries),
        sum(entry.absent_tokens for entry in entries),
    )


async def test_a_context_is_followed_from_computing_over_memory_to_disk(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            await talk.say("Tell me of the sea.")
            await talk.reach(host.replica)
            said = await calls.pages(talk.id)
            assert sums(said) == (0, 0, 0, said.tokens)
            assert said.seal is None
            request = await talk.request(tokens=6)
            answer = await talk.answer(request)
            await served.kept(talk, host, 1)
            kept = await calls.pages(talk.id)
            assert kept.seal == talk.held.order.seal_of[request]
            # All but the last token of the answer, which no step has computed.
            prompt = answer.usage.prompt_tokens
            assert sums(kept) == (prompt + 5, 0, 0, 1)
            assert kept.stored_tokens == prompt + 5
            assert [entry.tokens for entry in kept.entries][-1] == 6
            await calls._call("Evict", pb.EvictRequest(conversation=talk.id))
            assert sums(await calls.pages(talk.id)) == (0, 0, prompt + 5, 1)
            # It is no use of the checkpoint: what the next answer finds is what was shown.
            evicted = pb.EvictRequest(conversation=talk.id, checkpoints=True)
            await talk.say("And of the wind.")
            await talk.reach(host.replica)
            more = await calls.pages(talk.id)
            assert sums(more) == (0, 0, prompt + 5, more.tokens - prompt - 5)
            again = await talk.answer(await talk.request(tokens=2))
            assert again.usage.restored_tokens == prompt + 5
            await served.kept(talk, host, 2)
            await calls._call("Evict", evicted)
            gone = await calls.pages(talk.id)
            assert sums(gone) == (0, 0, 0, gone.tokens)
            earlier = await calls.pages(talk.id, talk.held.order.seal_of[request])
            assert earlier.tokens < gone.tokens


async def test_shared_pages_are_told_to_the_first_owner_alone(served: ServedHost):
    text = "Tell me everything there is to know of the sea. " * 12
    reader = key_of(7)
    async with served.host() as host:
        talks = [await Talk.begin(served.replica, host.key) for _ in range(2)]
        for talk in talks:
            grant = Member(Grant(public_key(reader), Role.READER))
            heads = tuple(talk.held.log.membership_heads())
            await talk.replica.append(talk.id, grant, parents=heads)
            await talk.say(text)
        await talks[0].answer(await talks[0].request(tokens=2))
        await served.kept(talks[0], host, 1)
        await talks[1].reach(host.replica)
        seen = []
        for key in (served.replica.key, reader):
            async with HostCalls(host.address, key, host.key) as calls:
                seen.append(await calls.pages(talks[1].id))
        owners, readers = map(sums, seen)
        assert owners[:3] == (0, seen[0].tokens, 0)
        assert readers == (0, 0, 0, seen[1].tokens)


async def test_only_members_get_an_answer_and_a_seal_must_count(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Hello.", tokens=2)
        async with HostCalls(host.address, key_of(9), host.key) as stranger:
            for conversation in (talk.id, ConversationId(bytes(32))):
                with pytest.raises(ConversationUnknown):
                    await stranger.pages(conversation)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            with pytest.raises(ArgumentInvalid, match="seal"):
                await calls.pages(talk.id, EntryId(b"?" * 32))


@pytest.mark.usefixtures("own_cache")
async def test_a_conversation_is_read_in_the_turn_of_a_call_for_those_who_may_read_it_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gathered, reader, free = list[ConversationId](), key_of(7), threading.Event()

    def gather(held: Conversation, node: SealNode | None) -> Branch:
        gathered.append(held.id)
        return gather_current(held, node)

    async def change(what: Grant | Revocation) -> None:
        heads = tuple(talk.held.log.membership_heads())
        await talk.replica.append(talk.id, Member(what), parents=heads)
        await talk.reach(two.host.replica)

    monkeypatch.setattr(pages_call, "gather_current", gather)
    async with two_profiles(tmp_path) as two, AsyncExitStack() as stack:
        talk, rendering = two.talk, two.host.handler.rendering
        await talk.say("Hello.")
        await change(Grant(public_key(reader), Role.READER))
        held_up = asyncio.create_task(rendering.run(free.wait, b"another"))
        stack.callback(free.set)
        calls = [HostCalls(two.host.address, key, two.host.key) for key in (key_of(1), reader)]
        of_owner, of_reader = [await stack.enter_async_context(one) for one in calls]
        waiting = [asyncio.create_task(one.pages(talk.id)) for one in (of_owner, of_reader)]
        async with asyncio.timeout(10):
            while rendering.waiting < 2:  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await of_owner.pages(talk.id)
        assert not gathered
        await change(Revocation(public_key(reader)))
        free.set()
        shown, refused, _ = await asyncio.gather(*waiting, held_up, return_exceptions=True)
        assert isinstance(shown, ContextPages)
        assert isinstance(refused, ConversationUnknown)
        assert gathered == [talk.id]
