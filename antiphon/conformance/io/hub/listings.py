"""Cases of LINK-8, LINK-94 and LINK-95: what an item of a Listing states, and its bytes."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, RawLink
from antiphon.conformance.io.hub.run import TABLE, HubRun, greet, opened, push
from antiphon.conformance.writers import Writer
from replica.link import Close, Frame, Hello, HostInfo, Listing, ListingItem, Pong
from replica.log import Role

_theme = TABLE.theme("listings")


async def _granted(run: HubRun) -> tuple[History, Caller, Writer]:
    """Push a conversation with a message and a host; return it, its owner and the host."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    return history, await run.push_all(history), host


def _as_host(host: Writer) -> Hello:
    return Hello((1,), follow=True, host=HostInfo(host.public, "", ()))


async def _items(link: RawLink, nonce: int) -> list[ListingItem]:
    found = await link.until_pong(nonce)
    return [item for message in found if isinstance(message, Listing) for item in message.items]


@_theme.shows("LINK-94")
async def an_item_states_the_creator(run: HubRun) -> None:
    """An item names the author of the genesis, whoever granted the role."""
    history, _, host = await _granted(run)
    link = await greet(await run.enter(host), _as_host(host))
    items = [(item.conversation, item.creator) for item in await _items(link, 1)]
    equal(items, [(history.id, history.owner.public)], "the items listed")


@_theme.shows("LINK-94", "LINK-4")
async def listings_count_against_the_credit(run: HubRun) -> None:
    """A Pong counts the bytes of a Listing."""
    _, _, host = await _granted(run)
    link = await greet(await run.enter(host), _as_host(host))
    found = await link.until_pong(1)
    listed = sum(len(Frame.of(m, "to_client").data) for m in found if isinstance(m, Listing))
    pong = found[-1]
    assert isinstance(pong, Pong)
    check(pong.sent_bytes >= listed > 0, f"{pong.sent_bytes} bytes counted of {listed} listed")


@_theme.shows("LINK-95")
async def a_waiting_request_is_stated_to_its_host_alone(run: HubRun) -> None:
    """The item of a conversation in which a request waits says so to the host that it names."""
    history, owner, host = await _granted(run)
    other, reader = history.writer("other host"), history.writer("reader")
    await push(owner, history.grant(other.public, Role.HOST))
    await push(owner, history.grant(reader.public, Role.READER))
    await push(owner, history.ask(host.public))
    awaited = []
    for writer, hello in (
        (host, _as_host(host)),
        (other, _as_host(other)),
        (reader, Hello((1,), follow=True)),
    ):
        link = await greet(await run.enter(writer), hello)
        awaited += [item.awaited for item in await _items(link, 1)]
    equal(awaited, [True, False, False], "`awaited` for the host, another host and a reader")


@_theme.shows("LINK-95")
async def a_new_request_lists_its_conversation_again(run: HubRun) -> None:
    """A conversation that its host has not open is listed to it again with a REQUEST for it."""
    history, owner, host = await _granted(run)
    link = await greet(await run.enter(host), _as_host(host))
    equal([item.awaited for item in await _items(link, 1)], [False], "`awaited` at first")
    await push(owner, history.ask(host.public))
    again = [(item.conversation, item.awaited) for item in await _items(link, 2)]
    equal(again, [(history.id, True)], "the items listed after a request")


@_theme.shows("LINK-95")
async def a_host_that_closes_a_waiting_conversation_is_listed_it_again(run: HubRun) -> None:
    """A host that has the conversation open is listed nothing; once it closes it, it is."""
    history, owner, host = await _granted(run)
    link = await opened(await run.enter(host), history, hello=_as_host(host))
    await _items(link, 1)
    await push(owner, history.ask(host.public))
    equal(await _items(link, 2), [], "the items listed while the conversation is open")
    await link.send(Close(history.id))
    again = [(item.conversation, item.awaited) for item in await _items(link, 3)]
    equal(again, [(history.id, True)], "the items listed after the Close")
