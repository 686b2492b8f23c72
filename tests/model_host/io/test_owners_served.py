"""Calls about conversations that a host has not opened, and those of owners it does not serve."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.conversation import encode_invitation
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import Redeeming, invite
from replica.io.calls.host_calls import HostCalls
from replica.log.body import Grant, Member, Role
from replica.log.entry import public_key
from replica.refusals import PeerIdentityChanged
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.talk import Talk, key_of
from tests.support.writers import Writer


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


async def test_a_host_that_is_ready_serves_what_its_hub_lists(served: ServedHost) -> None:
    settings = {"data_dir": served.folder / "host", "hub": served.hub.address}
    async with start_host(HostConfig(**settings), served.engine) as host:
        talk = await Talk.begin(served.replica, host.key)
        await host.replica.wait_for(lambda: talk.id in host.replica.shelf, 30)
    newcomer = key_of(9)
    grant = Member(Grant(public_key(newcomer), Role.READER))
    await talk.replica.append(talk.id, grant, parents=(EntryId(talk.id),))
    await until(lambda: not served.replica.hub.unsynced(talk.id))
    async with start_host(HostConfig(**settings, open_unasked_max=0), served.engine) as host:
        assert host.replica.on_demand.selection.creator(talk.id) == served.replica.public
        async with HostCalls(host.address, newcomer, host.key) as calls:
            assert (await calls.count_tokens(talk.id, text="a")).tokens == 1


async def begun(served: ServedHost) -> Talk:
    """Begin a conversation of another host, in sync with the hub."""
    talk = await Talk.begin(served.replica, public_key(key_of(8)))
    await served.replica.follow(talk.id)
    assert await served.replica.wait_synced(talk.id)
    return talk


async def test_a_conversation_is_joined_by_invitation_and_served_whoever_created_it(
    served: ServedHost,
) -> None:
    talk = await begun(served)
    issued = await invite(served.replica, talk.id, "a host", role=Role.HOST)
    code = encode_invitation(issued.invitation)
    settings = {"data_dir": served.folder / "host", "hub": served.hub.address}
    config = HostConfig(
        **settings, owner_keys=[Writer(5).public.hex()], invitations=[code], open_unasked_max=0
    )
    redeeming = Redeeming(served.replica, lambda _joined: None)
    redeeming.start()
    try:
        for _ in range(2):  # a restart finds itself a member
            async with start_host(config, served.engine) as host:
                await listed(host, talk)
                async with HostCalls(host.address, served.replica.key, host.key) as calls:
                    assert (await calls.count_tokens(talk.id, text="a")).tokens == 1
                assert talk.held.log.membership.roles[host.key] == {Role.HOST}
    finally:
        await redeeming.stop()


async def test_codes_for_persons_are_refused_before_the_start(served: ServedHost) -> None:
    talk = await begun(served)
    settings = {"data_dir": served.folder / "host", "hub": served.hub.address}
    issued = await invite(served.replica, talk.id, "x", role=Role.WRITER)
    for code in (encode_invitation(issued.invitation), "antiphon1.abc"):
        with pytest.raises(AntiphonError, match="invitation 1 of 1"):
            async with start_host(HostConfig(**settings, invitations=[code]), served.engine):
                pass
    assert not (served.folder / "host").exists()


async def test_a_code_of_another_hub_keeps_nothing_from_being_served(
    served: ServedHost,
) -> None:
    talk = await begun(served)
    issued = await invite(served.replica, talk.id, "x", role=Role.HOST)
    other = replace(issued.invitation, hub_key=Writer(66).public)
    codes = [encode_invitation(one) for one in (issued.invitation, other)]
    settings = {"data_dir": served.folder / "host", "hub": served.hub.address}
    async with start_host(HostConfig(**settings), served.engine):
        pass  # the hub's key is pinned
    redeeming = Redeeming(served.replica, lambda _joined: None)
    redeeming.start()
    for some in (codes[1:], codes):
        config = HostConfig(**settings, invitations=some)
        with capture_logs() as logs:
            async with start_host(config, served.engine) as host:
                assert await host.replica.wait_for(lambda: host.replica.hub.is_linked, 10)
                await until(lambda: "PEER_IDENTITY_CHANGED" in str(logs))
                if len(some) > 1:
                    await listed(host, talk)
        (line,) = (each for each in logs if each["event"] == "invitation refused")
        assert line["reason"] == PeerIdentityChanged.reason  # as in every line of an error
        assert not line["detail"].startswith(line["reason"])
        assert line["next_step"] == PeerIdentityChanged.next_step
    await redeeming.stop()
