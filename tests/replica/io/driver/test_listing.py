"""The list of a hub's conversations: whole, or an error (LINK-8)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replica.ids import ConversationId
from replica.io import rpc
from replica.io.calls.hub_calls import HubCalls
from replica.io.driver import listing
from replica.io.driver.listing import listed
from replica.io.store.store import Store
from replica.link import Close, Fault, Hello, Listing, ListingItem, Message, Ping, Pong, greeting
from replica.link.codec import decode_frame, encode_frame
from replica.refusals import HubUnreachable, QuotaExceeded, RateLimited
from tests.replica.io.driver.test_lying_hub import LyingHub, lying
from tests.support.writers import Writer

OWNER = Writer(1)
ID = ConversationId(b"c" * 32)
ITEM = ListingItem(ID, OWNER.public, awaited=False)


class ScriptedHub(LyingHub):
    """A hub that says these messages to each message, in turn, and then ends the link."""

    script: tuple[tuple[Message, ...], ...] = ()
    is_silent = False
    """Whether it leaves the link open behind its script."""

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        left = list(self.script)
        async for data in frames:
            self.received.append(decode_frame(data, "to_hub"))
            for message in left.pop(0) if left else ():
                await context.write(encode_frame(message, "to_client"))
            if not left and not self.is_silent:
                return


@asynccontextmanager
async def asking(
    folder: Path, *script: tuple[Message, ...]
) -> AsyncIterator[tuple[ScriptedHub, HubCalls]]:
    hub = ScriptedHub()
    hub.script = script
    async with lying(hub), await Store.open(folder / "pins.db") as store:
        calls = HubCalls(hub.address, OWNER.key, store)
        try:
            yield hub, calls
        finally:
            await calls.close()


WELCOME = greeting.welcome(LyingHub().authenticator.public)


async def test_a_list_is_whole_behind_a_pong_without_items_before_it(tmp_path: Path) -> None:
    script = ((WELCOME,), (Listing((ITEM,)), Pong(0)), (), (Pong(0),), ())
    async with asking(tmp_path, *script) as (hub, calls):
        assert await listed(calls) == (ID,)
        assert [type(one) for one in hub.received[:2]] == [Hello, Ping]


async def test_a_list_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    async with asking(tmp_path, (WELCOME,), (Listing((ITEM,)),)) as (hub, calls):
        with pytest.raises(HubUnreachable, match="the link ended before the end of the list"):
            await listed(calls)
        # The client may write before it learns of the end, and gRPC has an error of its own then.
        hub.script = ((WELCOME,), (Listing((ITEM,)), Pong(0)))
        with pytest.raises(HubUnreachable):
            await listed(calls)


async def test_a_silent_hub_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(tmp_path, (WELCOME,)) as (hub, calls):
        hub.is_silent = True
        await calls.authenticate()
        monkeypatch.setattr(rpc, "CALL_TIMEOUT_S", 1.0)
        with pytest.raises(HubUnreachable, match="the end of the list did not come in time"):
            await listed(calls)


async def test_a_hub_that_refuses_the_list_is_quoted(tmp_path: Path) -> None:
    refusal = Close(None, Fault("RATE_LIMITED", "later"))
    async with asking(tmp_path, (WELCOME,), (Listing((ITEM,)), refusal)) as (_, calls):
        with pytest.raises(RateLimited):
            await listed(calls)


async def test_a_list_without_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LISTED_MAX", 2)
    items = [ListingItem(ConversationId(bytes([n]) * 32), OWNER.public, False) for n in range(3)]
    script = ((WELCOME,), (*(Listing((one,)) for one in items[:2]), Pong(0)), (Pong(0),), ())
    async with asking(tmp_path, *script) as (hub, calls):
        assert await listed(calls) == (items[0].conversation, items[1].conversation)
        hub.script = ((WELCOME,), tuple(Listing((one,)) for one in items))
        with pytest.raises(QuotaExceeded, match="more than 2 conversations"):
            await listed(calls)
