"""Calls about conversations that a host has not opened, and those of owners it does not serve."""

import pytest

from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.errors import AntiphonError
from replica.io.host_calls import HostCalls
from replica.log.body import Role
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk, key_of
from tests.support.writers import Writer

STRANGER = key_of(9)


async def listed(host: HostServer, talk: Talk) -> None:
    """Wait until the hub has listed a conversation to the host."""
    selection = host.replica.on_demand.selection
    await host.replica.wait_for(lambda: selection.creator(talk.id) is not None, 30)


async def refused(host: HostServer, talk: Talk, number: int) -> str:
    async with HostCalls(host.address, key_of(number), host.key) as calls:
        with pytest.raises(AntiphonError) as error:
            await calls.count_tokens(talk.id, text="a")
    return error.value.reason


async def test_a_call_opens_its_conversation_and_names_the_policy_to_its_creator_alone(
    served: ServedHost,
) -> None:
    settings = {"data_dir": served.folder / "host", "hub": served.hub.address}
    closed = HostConfig(**settings, open_unasked_max=0)
    async with start_host(closed, served.engine) as host:
        talk = await Talk.begin(served.replica, host.key)
        await listed(host, talk)
        assert talk.id not in host.replica.shelf
        assert await refused(host, talk, 9) == "CONVERSATION_NOT_FOUND"
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            assert (await calls.count_tokens(talk.id, text="a")).tokens == 1
        assert talk.id in host.replica.shelf
        assert talk.held.log.membership.roles[host.key] == {Role.HOST}
    others = HostConfig(**settings, owner_keys=[Writer(5).public.hex()])
    async with start_host(others, served.engine) as host:
        await listed(host, talk)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            with pytest.raises(AntiphonError) as error:
                await calls.count_tokens(talk.id, text="a")
        assert error.value.reason == "OWNER_NOT_SERVED"
        assert await refused(host, talk, 9) == "CONVERSATION_NOT_FOUND"
        assert host.host.conversations["creator"] == 1
