"""Cases of chapter 05: digests, lane heads, and lists of ids."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.hub.run import (
    NOTHING,
    TABLE,
    HubRun,
    acked,
    entries_of,
    greet,
    opened,
    push,
    resolve,
    the_fault,
    the_last,
)
from antiphon.conformance.writers import said
from antiphon.v1 import sync_pb2 as pb
from replica.ids import EntryId
from replica.link import Ack, Credit, Entries, Fault, Ids, Open, Opened, Pong
from replica.log import Role, send_order

_theme = TABLE.theme("opening")

EQUAL_BYTES_MAX = 128
NUMBER = 7
"""Of an Open; any, as it is the first one of its link."""


@_theme.shows("LINK-11", "PROM-8")
async def an_equal_digest_is_all_that_is_sent(run: HubRun) -> None:
    """A digest that is equal is answered without heads and entries, in less than 128 bytes."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    link = await greet(owner)
    await link.send(Open(history.id, history.digest, number=NUMBER))
    data = await link.read_bytes()
    assert data is not None
    answer = pb.LinkResponse.FromString(data).opened
    equal((answer.equal, answer.digest), (True, history.digest), "the answer to an equal digest")
    equal(answer.number, NUMBER, "the number of the Open that is answered")
    check(len(data) < EQUAL_BYTES_MAX, f"the answer to an equal digest has {len(data)} bytes")
    (pong,) = await link.until_pong()
    check(isinstance(pong, Pong), "more than a Pong was sent behind an equal digest")


@_theme.shows("LINK-11", "REC-4")
async def another_digest_is_answered_with_heads(run: HubRun) -> None:
    """Another digest is answered with the hub's digest and heads; it sends no entries for it."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, number=NUMBER))
    found = await link.until_pong()
    answer = the_last(Opened, found)
    equal((answer.equal, answer.digest), (False, history.digest), "the answer to another digest")
    equal(answer.number, NUMBER, "the number of the Open that is answered")
    equal(sorted(answer.heads or ()), sorted(history.held.log.heads()), "the heads")
    equal(entries_of(found), [], "the entries sent for a digest alone")


@_theme.shows("LINK-11", "REC-5")
async def a_digest_on_an_open_conversation_is_only_compared(run: HubRun) -> None:
    """A digest alone, on a conversation that is open, is answered without heads, and truly."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    for digest in (history.digest, NOTHING):
        await link.send(Open(history.id, digest))
        found = await link.until_pong()
        answer = the_last(Opened, found)
        equal(answer.equal, digest == history.digest, "Opened.equal")
        equal(answer.heads, None, "the heads for a digest on an open conversation")
        equal(len(found), 2, "the number of messages with its Pong")


@_theme.shows("REC-1", "LINK-11", "PROM-1", "ORD-1")
async def all_entries_are_sent_in_send_order(run: HubRun) -> None:
    """A client that holds nothing gets all covered entries, in send order."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    for number in range(6):
        history.say(str(number), writer if number % 2 else None)
    owner = await run.push_all(history)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, ()))
    found = entries_of(await link.until_pong())
    wanted = [entry.id for entry in sorted(history.entries, key=send_order)]
    equal(found, wanted, "the ids sent to a client that holds nothing")


@_theme.shows("LINK-11", "REC-1")
async def an_open_conversation_is_compared_again(run: HubRun) -> None:
    """An Open with heads, of a conversation that is open, is answered like the first one."""
    history = run.new()
    message = history.say()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    heads = (history.genesis.position,)
    await link.send(Open(history.id, NOTHING, heads, number=NUMBER))
    found = await link.until_pong()
    answer = the_last(Opened, found)
    equal((answer.number, answer.equal), (NUMBER, False), "the answer to a later Open")
    equal(entries_of(found), [message.id], "the entries behind the heads of a later Open")


@_theme.shows("REC-1", "PROM-8")
async def the_missing_entries_alone_are_sent(run: HubRun) -> None:
    """A client gets the entries behind its heads, and no others."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    history.say("one")
    history.say("two", writer)
    held = history.held.log.heads()
    behind = [history.say("three").id, history.say("four", writer).id]
    owner = await run.push_all(history)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, held))
    equal(sorted(entries_of(await link.until_pong())), sorted(behind), "the ids that were sent")


@_theme.shows("REC-1", "REC-2", "LINK-15")
async def a_client_ahead_is_not_acked_for_it(run: HubRun) -> None:
    """Heads ahead of the hub's bring no Ack, and save sending the lane up to them."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    one = history.say("one")
    owner = await run.push_all(history)
    ahead = history.draw(said("the hub lacks it"), after=one)
    lacked = history.say("the client lacks it", writer)
    await push(owner, lacked)
    heads = (history.genesis.position, ahead.position)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, heads))
    found = await link.until_pong()
    equal([m for m in found if isinstance(m, Ack)], [], "the Acks for an assumption")
    sent = entries_of(found)
    check(one.id not in sent, "an entry of a lane on which the client is ahead was sent")
    check(lacked.id in sent, "an entry of another lane was not sent")
    equal((await resolve(owner, history, ahead.id)).fate, pb.FATE_UNKNOWN, "the fate")


@_theme.shows("REC-3", "REC-4", "PROM-12", "ENT-11")
async def a_diverged_lane_is_reported_and_both_histories_kept(run: HubRun) -> None:
    """Two entries at one position: LANES_DIVERGED, all ids exchanged, and both are kept."""
    history = run.new()
    twin = history.owner.restored()
    ours = twin.write(history.id, said("ours"), parents=[history.genesis])
    theirs = history.say("the hub's")
    owner = await run.push_all(history)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, (history.genesis.position, ours.position)))
    found = await link.until_pong()
    fault = the_fault(found)
    equal(fault.reason, "LANES_DIVERGED", "the reason for another id at a position")
    check(fault.entry in (ours.id, theirs.id), "LANES_DIVERGED names neither of the entries")
    ids = [i for m in found if isinstance(m, Ids) for i in m.ids]
    equal(sorted(ids), sorted(e.id for e in history.entries), "the ids of the hub")
    await link.send(Ids(history.id, (history.genesis.id, ours.id), answer=True))
    await link.send(Entries(history.id, (ours,)))
    found = await link.until_pong()
    check(theirs.id in entries_of(found), "the hub's own entry at the position was not sent")
    check(any(isinstance(m, Ack) for m in found), "the other entry was not acked")
    for entry in (ours, theirs):
        equal((await resolve(owner, history, entry.id)).fate, pb.FATE_DURABLE, "the fate")


@_theme.shows("REC-3")
async def an_answer_to_ids_asks_for_none(run: HubRun) -> None:
    """A list of ids is answered with one, marked as answer; an answer with none."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    await link.send(Ids(history.id, (history.genesis.id,)))
    found = await link.until_pong()
    lists = [m for m in found if isinstance(m, Ids)]
    check(lists and all(m.answer for m in lists), "the hub's ids are not marked as an answer")
    equal(entries_of(found), [history.entries[1].id], "the entries that the list lacks")
    await link.send(Ids(history.id, (history.genesis.id,), answer=True))
    found = await link.until_pong(nonce=8)
    equal([m for m in found if isinstance(m, Ids)], [], "the ids sent for an answer")


@_theme.shows("REC-3")
async def ids_come_in_chunks(run: HubRun) -> None:
    """A list in several chunks counts once the last one came."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    await link.send(Ids(history.id, (history.genesis.id,), more=True))
    found = await link.until_pong()
    equal(entries_of(found), [], "the entries sent before the last chunk")
    await link.send(Ids(history.id, (history.entries[1].id,)))
    equal(entries_of(await link.until_pong(nonce=8)), [], "the entries sent for a complete list")


@_theme.shows("LINK-14")
async def missing_entries_are_sent_when_asked_for(run: HubRun) -> None:
    """A hub that gets ENTRIES_MISSING sends those of the entries that it holds."""
    history = run.new()
    one = history.say("one")
    history.say("two")
    owner = await run.push_all(history)
    link = await opened(owner, history)
    asked = Fault("ENTRIES_MISSING", conversation=history.id, missing=(one.id, EntryId(bytes(32))))
    await link.send(asked)
    equal(entries_of(await link.until_pong()), [one.id], "the entries sent for ENTRIES_MISSING")


@_theme.shows("PROM-1", "PROM-5", "PROM-19", "MODEL-1")
async def the_order_of_arrival_changes_no_digest(run: HubRun) -> None:
    """Entries sent backwards and twice give the digest of the same entries in order."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    owner = await run.push_all(history)
    link = await opened(owner, history)
    more = [history.say(str(n), writer if n % 2 else None) for n in range(6)]
    for entry in reversed(more):
        await link.send(Entries(history.id, (entry,)))
    for entry in more:
        await link.send(Entries(history.id, (entry, entry)))
    await link.send(Open(history.id, history.digest))
    found = await link.until_pong()
    last = the_last(Opened, found)
    equal((last.equal, last.digest), (True, history.digest), "the digest")


@_theme.shows("REC-6")
async def a_log_of_many_heads_is_compared_by_ids(run: HubRun) -> None:
    """A hub whose log has more than 8,192 heads answers with none, and compares ids."""
    history = run.new()
    writers = [history.writer(f"writer {n}") for n in range(9)]
    for writer in writers:
        history.grant(writer.public, Role.WRITER)
    owner = await run.push_all(history)
    lanes = [
        history.writer(f"writer {n % 9}", 2 + n // 9).write(
            history.id, said(""), parents=[history.genesis]
        )
        for n in range(run.scale.heads + 1)
    ]
    link = await opened(owner, history)
    for at in range(0, len(lanes), 1024):
        await link.send(Entries(history.id, tuple(lanes[at : at + 1024])))
        await acked(link, *lanes[at : at + 1024])
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING))
    answer = await link.next_of(Opened)
    equal((answer.equal, answer.heads), (False, ()), "the answer of a log of many heads")
    listed = [e.id for e in history.entries] + [e.id for e in lanes[1:]]
    while listed:
        chunk, listed = listed[:8192], listed[8192:]
        await link.send(Ids(history.id, tuple(chunk), more=bool(listed)))
    found: list[EntryId] = []
    while not found:
        await link.send(Credit(64 * 1024 * 1024))
        found = entries_of([m for m in [await link.read()] if m is not None])
    equal(found, [lanes[0].id], "the entries that the list of ids lacks")
