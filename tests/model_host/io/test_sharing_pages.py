"""Conversations whose genesis consents share pages, and tell the owner alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import host_pb2 as pb
from replica.io.calls.host_calls import HostCalls
from replica.io.driver.replica import Replica
from replica.log.body import Genesis, Grant, Member, Role
from replica.log.entry import public_key
from tests.model_host.io.tiny_hosts import TinyHosts, tiny_hosts
from tests.support.talk import Talk, key_of

pytestmark = pytest.mark.usefixtures("own_cache")

LONG = "hello " * 80
READER, WRITER = key_of(7), key_of(8)


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[TinyHosts]:
    async with tiny_hosts(tmp_path) as made:
        yield made


async def talk_with(hosts: TinyHosts, replica: Replica, *, shares: bool, **members: Role) -> Talk:
    """Begin a conversation with a host and other members."""
    conversation = await replica.create(Genesis((replica.public,), shares_pages=shares))
    talk = Talk(replica, conversation, hosts.key("one"))
    grants = [Grant(talk.host, Role.HOST)]
    keys = {"r": READER, "w": WRITER}
    grants += [Grant(public_key(keys[k]), role) for k, role in members.items()]
    for grant in grants:
        heads = tuple(talk.held.log.membership_heads()) or (conversation,)
        await replica.append(conversation, Member(grant), parents=heads)
    return talk


async def shared_tokens(hosts: TinyHosts, address: str, talk: Talk, key) -> int:
    async with HostCalls(address, key, talk.host) as calls:
        pages = await calls._call("Pages", pb.PagesRequest(conversation=talk.id))
    return sum(entry.shared_tokens for entry in pages.entries)


async def test_conversations_share_pages_where_both_consent(hosts: TinyHosts):
    async with hosts.host("one") as host:
        first = await talk_with(hosts, hosts.replica, shares=True, r=Role.READER)
        await first.ask(LONG, tokens=2)
        counters = host.thread.counts.batch
        # Other readers: without consent nothing is found, with it all that is common.
        closed = await talk_with(hosts, hosts.replica, shares=False, w=Role.WRITER)
        await closed.ask(LONG, tokens=2)
        assert counters.shared_tokens == 0
        second = await talk_with(hosts, hosts.replica, shares=True, w=Role.WRITER)
        _, answer = await second.ask(LONG, tokens=2)
        assert counters.shared_tokens > 150
        # The log says nothing of it (PAGE-8).
        assert answer.usage.prefilled_tokens == answer.usage.prompt_tokens


async def test_the_owner_alone_is_shown_what_is_shared(hosts: TinyHosts):
    async with hosts.host("one") as host:
        first = await talk_with(hosts, hosts.replica, shares=True)
        second = await talk_with(hosts, hosts.replica, shares=True, w=Role.WRITER)
        await first.ask(LONG, tokens=2)
        await second.say(LONG)
        request = await second.request(tokens=2)
        await second.answer(request)
        await host.thread.evict(second.id, checkpoints=True)
        owner = await shared_tokens(hosts, host.address, second, hosts.replica.key)
        member = await shared_tokens(hosts, host.address, second, WRITER)
        assert owner > 150
        assert member == 0


async def test_marked_conversations_of_another_owner_share_nothing(hosts: TinyHosts):
    async with hosts.host("one") as host:
        first = await talk_with(hosts, hosts.replica, shares=True)
        await first.ask(LONG, tokens=2)
        path = hosts.folder / "other" / "log.db"
        async with Replica.open(path, key_of(3), hosts.hub.address) as other:
            await other.wait_for(lambda: other.hub.is_linked, 30)
            second = await talk_with(hosts, other, shares=True)
            await second.ask(LONG, tokens=2)
        assert host.thread.counts.batch.shared_tokens == 0
