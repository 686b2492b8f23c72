"""HostService: its answers, and the callers it answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import host_pb2 as pb
from model_host.engine.torch_engine import TorchEngine
from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.errors import AntiphonError
from replica.ids import ConversationId
from replica.io import rpc
from replica.io.calls.host_calls import HostCalls
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create, load_or_create_secret
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import Authenticator, prove
from replica.log.body import Grant, Member, Role
from replica.log.entry import public_key
from replica.refusals import ArgumentInvalid, ConversationUnknown, NotAllowed, Unauthenticated
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.io.held_steps import held_after
from tests.support.hub_views import refusal
from tests.support.talk import Talk, key_of


@pytest.fixture
async def talk_and_host(
    tmp_path: Path, small_of: Callable[[str], TorchEngine]
) -> AsyncIterator[tuple[Talk, HostServer]]:
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    config = HostConfig(data_dir=tmp_path / "host", hub=hub.address)
    path = tmp_path / "replica" / "log.db"
    async with (
        start_host(config, small_of("bf16")) as host,
        Replica.open(path, key_of(1), hub.address) as replica,
    ):
        yield await Talk.begin(replica, host.key), host
    await hub.stop()


async def test_a_host_describes_its_profile_and_counts(talk_and_host: tuple[Talk, HostServer]):
    talk, host = talk_and_host
    await talk.ask("Hello.", tokens=3)
    async with HostCalls(host.address, talk.replica.key, host.key) as calls:
        described = await calls.describe()
    assert described.host_key == host.key
    assert described.profiles[0].info.digest == host.profile.digest
    assert described.profiles[0].bitwise
    assert described.counters.generations == 1


async def test_only_members_get_answers_about_a_conversation(
    talk_and_host: tuple[Talk, HostServer],
):
    talk, host = talk_and_host
    await talk.ask("Hello.", tokens=3)
    async with HostCalls(host.address, key_of(9), host.key) as stranger:
        for conversation in (talk.id, ConversationId(bytes(32))):
            with pytest.raises(ConversationUnknown) as refused:
                await stranger.list_checkpoints(conversation)
            # The same answer for "no such conversation" and "not yours".
            assert refused.value.detail == str(ConversationUnknown())
    async with HostCalls(host.address, talk.replica.key, host.key) as member:
        assert await member.list_checkpoints(talk.id)


async def test_readers_evict_nothing_and_running_answers_are_not_evicted(
    talk_and_host: tuple[Talk, HostServer],
):
    talk, host = talk_and_host
    reader = key_of(7)
    grant = Grant(public_key(reader), Role.READER)
    heads = tuple(talk.held.log.membership_heads())
    await talk.replica.append(talk.id, Member(grant), parents=heads)
    await talk.say("Write a very long story about the sea.")
    asked = pb.EvictRequest(conversation=talk.id, checkpoints=True)
    async with (
        HostCalls(host.address, reader, host.key) as calls_of_reader,
        HostCalls(host.address, talk.replica.key, host.key) as calls,
    ):
        with held_after(12) as goes_on:
            request = await talk.request(tokens=200, output_tokens_min=200)
            assert await talk.replica.wait_for(lambda: len(talk.shown(request)) > 20, 30)
            await calls.describe()  # it has a ticket now
            with pytest.raises(NotAllowed):
                await calls_of_reader._call("Evict", asked)
            goes_on.set()
            with pytest.raises(AntiphonError) as refused:
                await calls._call("Evict", asked)
        assert refused.value.reason == "CACHE_BUSY"
        assert len((await talk.answer(request)).token_ids) == 200
        assert (await calls._call("Evict", asked)).memory_tokens > 200


async def test_a_host_can_be_described_at_any_moment_of_a_turn(
    talk_and_host: tuple[Talk, HostServer],
):
    talk, host = talk_and_host
    seen: set[tuple[int, int]] = set()
    async with HostCalls(host.address, talk.replica.key, host.key) as calls:

        async def describe() -> None:
            while host.thread.counts.writes.written < 2:
                described = await calls.describe()
                seen.add((described.running, described.waiting))

        describing = asyncio.create_task(describe())
        await talk.ask("Tell me more.", tokens=10)
        await talk.ask("Tell me more.", tokens=10)
        await describing
    # While a checkpoint is written, the running request is no longer open.
    assert seen <= {(0, 0), (0, 1), (1, 0)}
    assert (1, 0) in seen


async def test_without_a_valid_ticket_every_call_is_refused(
    talk_and_host: tuple[Talk, HostServer], tmp_path: Path
):
    talk, host = talk_and_host
    secret = load_or_create_secret(tmp_path / "host" / "ticket.secret")
    authenticator = Authenticator(load_or_create(tmp_path / "host" / "identity.key"), secret)
    key, nonce, then = talk.replica.key, bytes(32), rpc.now_ms() - TICKET_LIFETIME_S * 1000
    challenge = authenticator.challenge(talk.replica.public, nonce, then)
    proof = prove(key, nonce, challenge, expected_server=host.key, now_ms=then)
    expired = authenticator.admit(talk.replica.public, nonce, challenge.expire_time_ms, proof, then)
    methods = pb.DESCRIPTOR.services_by_name["HostService"].methods
    async with grpc.aio.insecure_channel(host.address) as channel:
        for name in [method.name for method in methods if method.name != "Authenticate"]:
            call = channel.unary_unary(f"/antiphon.v1.HostService/{name}")
            for metadata in ((), ((rpc.TICKET_METADATA, expired),)):
                found = await refusal(call(b"", metadata=metadata))
                assert found == (Unauthenticated.reason, Unauthenticated.next_step)
    # Our own calls obtain a fresh one automatically.
    async with HostCalls(host.address, key, host.key) as calls:
        calls._ticket = expired
        assert (await calls.describe()).host_key == host.key


async def test_a_malformed_argument_gets_a_typed_answer(talk_and_host: tuple[Talk, HostServer]):
    talk, host = talk_and_host
    async with HostCalls(host.address, talk.replica.key, host.key) as calls:
        with pytest.raises(ArgumentInvalid):
            await calls.list_checkpoints(ConversationId(b"short"))


async def test_a_host_with_another_key_than_expected_is_refused(
    talk_and_host: tuple[Talk, HostServer],
):
    talk, host = talk_and_host
    async with HostCalls(host.address, talk.replica.key, talk.replica.public) as calls:
        with pytest.raises(AntiphonError) as refused:
            await calls.describe()
    assert refused.value.reason == "PEER_IDENTITY_CHANGED"
