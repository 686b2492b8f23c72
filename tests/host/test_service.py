"""HostService: what a host says of itself, and to whom."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from model_host.aio.server import HostServer
from model_host.aio.server import start as start_host
from model_host.config import HostConfig
from model_host.engine import TorchEngine
from replica.aio.client import Client
from replica.aio.host_calls import HostCalls
from replica.errors import AntiphonError
from replica.ids import ConversationId
from replica.refusals import ArgumentInvalid, ConversationUnknown
from syncd.aio.server import start as start_hub
from syncd.config import HubConfig
from tests.support.talk import Talk, key_of


@pytest.fixture
async def talk_and_host(
    tmp_path: Path, engine_of: Callable[[str], TorchEngine]
) -> AsyncIterator[tuple[Talk, HostServer]]:
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    config = HostConfig(data_dir=tmp_path / "host", hub=hub.address)
    path = tmp_path / "replica" / "log.db"
    async with (
        start_host(config, engine_of("bf16")) as host,
        Client.open(path, key_of(1), hub.address) as client,
    ):
        yield await Talk.begin(client, host.key), host
    await hub.stop()


async def test_a_host_describes_its_profile_and_counts(talk_and_host: tuple[Talk, HostServer]):
    talk, host = talk_and_host
    await talk.ask("Hello.", tokens=3)
    async with HostCalls(host.address, talk.client.key, host.key) as calls:
        described = await calls.describe()
    assert described.host_key == host.key
    assert described.profiles[0].info.digest == host.profile.digest
    assert described.profiles[0].bitwise
    assert described.counters.generations == 1


async def test_only_members_learn_of_a_conversation(talk_and_host: tuple[Talk, HostServer]):
    talk, host = talk_and_host
    await talk.ask("Hello.", tokens=3)
    async with HostCalls(host.address, key_of(9), host.key) as stranger:
        for conversation in (talk.id, ConversationId(bytes(32))):
            with pytest.raises(ConversationUnknown) as refusal:
                await stranger.list_checkpoints(conversation)
            # The same words for "no such conversation" and "not yours".
            assert refusal.value.detail == str(ConversationUnknown())
    async with HostCalls(host.address, talk.client.key, host.key) as member:
        assert await member.list_checkpoints(talk.id)


async def test_a_malformed_argument_gets_a_typed_answer(talk_and_host: tuple[Talk, HostServer]):
    talk, host = talk_and_host
    async with HostCalls(host.address, talk.client.key, host.key) as calls:
        with pytest.raises(ArgumentInvalid):
            await calls.list_checkpoints(ConversationId(b"short"))


async def test_a_host_with_another_key_than_expected_is_refused(
    talk_and_host: tuple[Talk, HostServer],
):
    talk, host = talk_and_host
    async with HostCalls(host.address, talk.client.key, talk.client.public) as calls:
        with pytest.raises(AntiphonError) as refusal:
            await calls.describe()
    assert refusal.value.reason == "PEER_IDENTITY_CHANGED"
