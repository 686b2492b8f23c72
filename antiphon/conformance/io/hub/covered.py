"""Cases of chapter 03 §5: entries that become covered, and those that no longer are."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, RawLink
from antiphon.conformance.io.hub.run import (
    NOTHING,
    TABLE,
    HubRun,
    acked,
    entries_of,
    greet,
    opened,
    push,
)
from antiphon.conformance.writers import said
from replica.link import Ack, Entries, Fault, Open
from replica.log import Entry, Role

_theme = TABLE.theme("covered")


async def _opened_without(caller: Caller, history: History, left_out: Entry) -> RawLink:
    """Open a conversation, once all of it but one entry behind a cut is sent to who has nothing."""
    link = await greet(caller)
    await link.send(Open(history.id, NOTHING, ()))
    sent = entries_of(await link.until_pong())
    check(left_out.id not in sent, "an entry behind a cut was sent to a member that lacks it")
    return await opened(caller, history)


@_theme.shows("ORD-16", "ORD-17", "ORD-13")
async def what_a_cut_left_out_is_kept_and_offered_once_named(run: HubRun) -> None:
    """An acked entry behind a cut is offered to nobody, and again before an entry that names it."""
    history = run.new()
    writer, reader = history.writer("writer"), history.writer("reader")
    history.grant(writer.public, Role.WRITER)
    history.grant(reader.public, Role.READER)
    cut_off = history.say("cut off", writer)
    owner = await run.push_all(history)
    await push(owner, history.revoke(writer.public))
    link = await _opened_without(await run.enter(reader), history, cut_off)
    reply = history.draw(said("reply"), after=cut_off)
    await push(owner, reply)
    offered = entries_of(await link.until_pong())
    equal(offered, [cut_off.id, reply.id], "the entries offered with one that names a cut-off one")


@_theme.shows("ORD-16", "LINK-24")
async def what_a_long_message_covers_at_its_end_is_not_refused(run: HubRun) -> None:
    """A reader's entry at the beginning of a message is durable once its end names it."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    owner = await run.push_all(history)
    word, other, third = [history.draw(said(word), reader) for word in ("word", "other", "third")]
    link = await opened(owner, history)
    between = [history.say(f"line {number}") for number in range(40)]
    reply = history.add(history.draw(said("reply"), after=word))
    await link.send(Entries(history.id, (word, other, *between, reply)))
    found = await link.until_pong()
    refused = [(m.reason, m.entry) for m in found if isinstance(m, Fault)]
    equal(refused, [("ROLE_FORBIDS", other.id)], "the entries of a long message that are refused")
    tips = {i for m in found if isinstance(m, Ack) for i in m.ids}
    equal(word.id in tips, True, "whether the entry is acked that its end covers")
    between = [history.say(f"more {number}") for number in range(40)]
    reply = history.add(history.draw(said("reply"), after=third))
    await push(owner, third, *between, reply)


@_theme.shows("ORD-17", "PROM-5")
async def what_a_grant_lets_in_is_offered_behind_it(run: HubRun) -> None:
    """An entry of a key without a role is not acked, and is offered behind its author's grant."""
    history = run.new()
    newcomer = history.writer("newcomer")
    owner = await run.push_all(history)
    reader, link = [await opened(owner, history) for _ in range(2)]
    hello = history.draw(said("hello"), newcomer)
    await link.send(Entries(history.id, (hello,)))
    found = await link.until_pong()
    equal([m for m in found if isinstance(m, Ack)], [], "the Acks before the grant")
    equal(entries_of(await reader.until_pong()), [], "the entries offered before the grant")
    await reader.send(Fault("ENTRIES_MISSING", conversation=history.id, missing=(hello.id,)))
    equal(entries_of(await reader.until_pong(9)), [], "the entries sent, uncovered, when asked for")
    grant = history.grant(newcomer.public, Role.WRITER)
    await link.send(Entries(history.id, (grant,)))
    await acked(link, grant, hello)
    equal(entries_of(await reader.until_pong(8)), [grant.id, hello.id], "the entries offered")


@_theme.shows("ORD-17", "ORD-3")
async def what_comes_back_with_the_end_of_a_cut_is_offered_behind_that(run: HubRun) -> None:
    """An entry behind a cut is offered behind the revocation of whoever made the cut."""
    history = run.new()
    writer, other, reader = [history.writer(name) for name in ("writer", "other", "reader")]
    history.grant(other.public, Role.OWNER)
    granted = history.grant(writer.public, Role.WRITER, by=other)
    history.grant(reader.public, Role.READER)
    cut_off = history.say("cut off", writer)
    owner = await run.push_all(history)
    cut = history.revoke(writer.public, by=other)
    await push(await run.enter(other), cut)
    link = await _opened_without(await run.enter(reader), history, cut_off)
    change = history.revoke(other.public, granted)
    await push(owner, change)
    offered = [i for i in entries_of(await link.until_pong()) if i != cut.id]
    equal(offered, [change.id, cut_off.id], "the entries offered behind the end of a cut")
