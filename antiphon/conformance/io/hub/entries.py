"""Cases of chapter 04 §5 and §7: entries on a link, acks, refusals, and offers."""

import asyncio
from dataclasses import replace

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History, forged
from antiphon.conformance.io.calls import PATIENCE_S, refusal
from antiphon.conformance.io.hub.run import (
    NOTHING,
    TABLE,
    HubRun,
    acked,
    entries_of,
    faults_of,
    fetch,
    greet,
    opened,
    outcomes,
    push,
    resolve,
    the_fault,
)
from antiphon.conformance.writers import said
from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.limits import PENDING_LINK_BYTES_MAX
from replica.link import Ack, Close, Entries, Open, Opened, fault_from_pb
from replica.log import (
    Entry,
    Grant,
    Member,
    Message,
    Opaque,
    Role,
    Speaker,
    codec,
    entry_id,
    entry_to_pb,
    sign,
)

_theme = TABLE.theme("entries")
POLL_S = 0.02


@_theme.shows("LINK-13", "LINK-15", "PROM-6")
async def entries_are_acked_once_durable(run: HubRun) -> None:
    """Entries are acked, and each acked one is durable by Resolve."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    sent = [history.say("one"), history.say("two")]
    await link.send(Entries(history.id, tuple(sent)))
    await acked(link, *sent)
    for entry in sent:
        equal((await resolve(owner, history, entry.id)).fate, pb.FATE_DURABLE, "the fate")


@_theme.shows("PROM-4", "LINK-13")
async def the_same_entries_again_change_nothing(run: HubRun) -> None:
    """Entries that come again are acked again, and are in the log once."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    sent = (history.say("one"), history.say("two"))
    for _ in range(3):
        await link.send(Entries(history.id, (*sent, *sent)))
        await acked(link, *sent)
    await link.send(Open(history.id, history.digest))
    equal((await link.next_of(Opened)).equal, True, "Opened.equal after doubled entries")
    found = await fetch(owner, history.id, ids=[e.id for e in sent])
    equal(sum(len(r.entries) for r in found), 2, "the number of entries in the log")


@_theme.shows("ENT-7", "LINK-24")
async def a_body_that_comes_later_is_kept(run: HubRun) -> None:
    """A message that came without its body is durable, and complete, once it came with it."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    entry = history.say()
    await link.send(Entries(history.id, (replace(entry, body=None),)))
    await link.until_pong()
    await push(owner, entry)
    (response,) = await fetch(owner, history.id, ids=[entry.id])
    equal(list(response.entries), [entry_to_pb(entry)], "the entry whose body came later")


@_theme.shows("LINK-13", "PROM-17")
async def a_refused_entry_is_named_with_its_reason(run: HubRun) -> None:
    """A forged entry is named with SIGNATURE_INVALID, and those beside it are acked."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    good = history.say("good")
    bad = history.draw(said("bad"))
    await link.send(Entries(history.id, (forged(bad), good)))
    found = await link.until_pong()
    faults = [(f.entry, f.reason, f.conversation) for f in faults_of(found)]
    equal(faults, [(bad.id, "SIGNATURE_INVALID", history.id)], "the faults")
    equal([i for m in found if isinstance(m, Ack) for i in m.ids], [good.id], "the acked ids")
    equal((await resolve(owner, history, bad.id)).fate, pb.FATE_UNKNOWN, "the fate of a forged one")


@_theme.shows("ERR-1", "PROM-17")
async def faults_have_the_form_of_the_chapter(run: HubRun) -> None:
    """A Fault of a link or of a Push has a next step, and says whether to send again."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    late = history.draw(said("behind a lost one"), after=history.draw(said("lost")))
    bad = forged(history.draw(said("bad")))
    await link.send(Entries(history.id, (late,)), Entries(history.id, (bad,)))
    found = {"link": faults_of(await link.until_pong())}
    found["Push"] = [fault_from_pb(one.fault) for one in await outcomes(owner, (late, bad))]
    for where, faults in found.items():
        retryable = {fault.reason: fault.retryable for fault in faults}
        wanted = {"ENTRIES_MISSING": True, "SIGNATURE_INVALID": False}
        equal(retryable, wanted, f"what the faults of a {where} call retryable")
        check(all(fault.next_step for fault in faults), f"a fault of a {where} has no next step")


@_theme.shows("LINK-13", "PROM-17")
async def a_frame_of_unreadable_entries_fails_with_the_first_reason(run: HubRun) -> None:
    """A frame that names no conversation and of which no entry can be read ends the link."""
    history = run.new()
    owner = await run.push_all(history)
    link = await greet(owner)
    torn = pb.Entries(entries=[log_pb2.Entry(header=b"\x90\x00\x05")])
    await link.send_bytes(pb.LinkRequest(entries=torn).SerializeToString())
    equal(await link.ended(), "WIRE_MALFORMED", "the reason for a frame of unreadable entries")
    link = await greet(owner)
    torn.conversation = history.id
    await link.send_bytes(pb.LinkRequest(entries=torn).SerializeToString())
    fault = the_fault(await link.until_pong())
    equal((fault.entry, fault.reason), (entry_id(b"\x90\x00\x05"), "WIRE_MALFORMED"), "the fault")


@_theme.shows("LINK-13", "PROM-5")
async def an_entry_waits_for_those_it_names(run: HubRun) -> None:
    """An entry before those it names is pending: ENTRIES_MISSING, and acked once they came."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    first, second = history.say("first"), history.say("second")
    await link.send(Entries(history.id, (second,)))
    found = await link.until_pong()
    fault = the_fault(found)
    equal((fault.reason, fault.missing), ("ENTRIES_MISSING", (first.id,)), "the fault")
    equal([m for m in found if isinstance(m, Ack)], [], "the Acks of a pending entry")
    equal((await resolve(owner, history, second.id)).fate, pb.FATE_PENDING, "the fate")
    await link.send(Entries(history.id, (first,)))
    await acked(link, first, second)
    equal((await resolve(owner, history, second.id)).fate, pb.FATE_DURABLE, "the fate afterwards")


@_theme.shows("LINK-13")
async def each_link_that_sends_a_pending_entry_gets_an_answer(run: HubRun) -> None:
    """An entry that another link brought, and that is pending, is answered on each link."""
    history = run.new()
    owner = await run.push_all(history)
    links = [await opened(owner, history) for _ in range(2)]
    first, second = history.say("first"), history.say("second")
    for link in links:
        await link.send(Entries(history.id, (second,)))
        fault = the_fault(await link.until_pong())
        equal((fault.reason, fault.missing), ("ENTRIES_MISSING", (first.id,)), "the fault")


@_theme.shows("PROM-16", "LINK-13", "LIM-3", "ENT-12")
async def pending_entries_are_bounded(run: HubRun) -> None:
    """Pending entries beyond 4 MiB on a link are dropped: PENDING_FULL. Other links have room.

    Each conversation that lost some is named.
    """
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    second = run.new()
    second.grant(history.owner.public, Role.WRITER)
    await run.push_all(second)
    unsent = second.draw(said("never sent"))
    await link.send(Entries(second.id, (second.draw(said("pending"), after=unsent),)))
    lost = history.draw(said("never sent"))
    size, pending = 450_000, list[Entry]()
    while size * len(pending) <= PENDING_LINK_BYTES_MAX:
        pending.append(history.draw(said("x" * size), after=(pending or [lost])[-1]))
    *within, beyond = pending
    for entry in within:
        await link.send(Entries(history.id, (entry,)))
    await link.until_pong()
    other = await opened(owner, history)
    more = history.draw(said("x" * size), after=beyond)
    await other.send(Entries(history.id, (more,)))
    fault = the_fault(await other.until_pong())
    equal(fault.reason, "ENTRIES_MISSING", "the reason for a pending entry of another link")
    await link.send(Entries(history.id, (beyond,)))
    full = [f for f in faults_of(await link.until_pong()) if f.reason == "PENDING_FULL"]
    told = {fault.conversation for fault in full}
    equal(told, {history.id, second.id}, "the conversations told that 4.5 MB are too much")
    equal((await resolve(owner, history, pending[0].id)).fate, pb.FATE_UNKNOWN, "the fate")


@_theme.shows("ENT-12")
async def pending_entries_end_with_their_link(run: HubRun) -> None:
    """A pending entry is unknown once the link that brought it has ended, and stays so."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    first = history.draw(said("first"))
    second = history.draw(said("second"), after=first)
    await link.send(Entries(history.id, (second,)))
    equal(the_fault(await link.until_pong()).reason, "ENTRIES_MISSING", "the reason")
    link.cancel()
    give_up_at = asyncio.get_running_loop().time() + PATIENCE_S
    while (await resolve(owner, history, second.id)).fate == pb.FATE_PENDING:
        late = asyncio.get_running_loop().time() > give_up_at
        check(not late, "a pending entry is kept after the end of the link that brought it")
        await asyncio.sleep(POLL_S)
    await push(owner, first)
    equal((await resolve(owner, history, second.id)).fate, pb.FATE_UNKNOWN, "the fate")


@_theme.shows("CONV-3")
async def create_times_decide_nothing(run: HubRun) -> None:
    """Entries of the far future and without a time are durable, and sent in send order."""
    history = run.new()
    owner = await run.push_all(history)
    sent = [history.genesis]
    for epoch, time_ms in ((2, 2**63), (3, 0), (4, 2**64 - 1), (5, 1)):
        author = history.writer("owner", epoch)
        plain = author.write(history.id, said(str(time_ms)), parents=[sent[-1]])
        header = codec.encode_header(replace(plain.header, create_time_ms=time_ms))
        sent.append(codec.decode_entry(header, sign(header, author.key), plain.body))
    await push(owner, *sent)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, ()))
    found = entries_of(await link.until_pong())
    equal(found, [entry.id for entry in sent], "the entries sent")


@_theme.shows("LINK-13", "TRUST-2", "ORD-16")
async def an_entry_of_a_reader_is_not_acked(run: HubRun) -> None:
    """A message of a reader, whom nobody follows, is answered with a Fault and no Ack."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    owner = await run.push_all(history)
    link = await opened(await run.enter(reader), history)
    entry = history.draw(by=reader)
    await link.send(Entries(history.id, (entry,)))
    found = await link.until_pong()
    equal(
        [(f.entry, f.reason) for f in faults_of(found)], [(entry.id, "ROLE_FORBIDS")], "the faults"
    )
    equal([m for m in found if isinstance(m, Ack)], [], "the Acks of a reader's message")
    fate = (await resolve(owner, history, entry.id)).fate
    equal(fate in (pb.FATE_UNKNOWN, pb.FATE_UNCOVERED), True, "whether its fate is a refusal")


# --- offers to other links ------------------------------------------------------------


@_theme.shows("LINK-20", "PROM-7")
async def entries_are_offered_to_all_other_links(run: HubRun) -> None:
    """New entries are sent to each other link in order, and not back to their own."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    owner = await run.push_all(history)
    readers = [await opened(caller, history) for caller in (owner, await run.enter(reader))]
    link = await opened(owner, history)
    sent = [history.say(str(number)) for number in range(5)]
    for entry in sent:
        await link.send(Entries(history.id, (entry,)))
    await acked(link, *sent)
    equal(entries_of(await link.until_pong()), [], "the entries sent back to their sender")
    pushed = history.say("pushed")
    await push(owner, pushed)
    wanted = [*(e.id for e in sent), pushed.id]
    for each in readers:
        equal(entries_of(await each.until_pong()), wanted, "the entries offered")


@_theme.shows("LINK-20", "PROM-5")
async def pending_entries_are_offered_behind_those_they_name(run: HubRun) -> None:
    """A pending entry is offered once it is admitted, behind the entry that released it."""
    history = run.new()
    owner = await run.push_all(history)
    reader, first_link, second_link = [await opened(owner, history) for _ in range(3)]
    first, second = history.say("first"), history.say("second")
    await second_link.send(Entries(history.id, (second,)))
    await second_link.until_pong()
    equal(entries_of(await reader.until_pong()), [], "the entries offered while pending")
    await first_link.send(Entries(history.id, (first,)))
    found = await acked(first_link, first)  # the other one was not sent there
    equal(entries_of(await reader.until_pong(8)), [first.id, second.id], "the entries offered")
    released = entries_of([*found, *await first_link.until_pong(8)])
    equal(released, [second.id], "the entries offered to the link that released them")


@_theme.shows("LINK-20")
async def a_conversation_that_was_closed_is_not_offered(run: HubRun) -> None:
    """A link that closed a conversation gets no more of it, and keeps its others."""
    history = run.new()
    owner = await run.push_all(history)
    link = await opened(owner, history)
    await link.send(Close(history.id))
    await link.until_pong()
    await push(owner, history.say())
    equal(entries_of(await link.until_pong(8)), [], "the entries of a conversation that was closed")


# --- content that a hub does not know ---------------------------------------------------


@_theme.shows("PROM-18", "VER-1", "VER-2", "VER-5")
async def unknown_kinds_and_fields_pass_unchanged(run: HubRun) -> None:
    """Entries of unknown kinds, 10 and 11 too, and an unknown header field pass byte by byte."""
    history = run.new()
    owner = await run.push_all(history)
    reader, link = [await opened(owner, history) for _ in range(2)]
    parents = [history.genesis]
    newer = [
        history.owner.write(history.id, said("of a newer kind"), parents=parents, kind=kind)
        for kind in (10, 11, 99)
    ]
    sent = (*newer, _with_unknown_field(history))
    await link.send(Entries(history.id, sent))
    await acked(link, *sent)
    got: list[Entry] = []
    while len(got) < len(sent):
        got += (await reader.next_of(Entries)).entries
    in_order = [sorted(map(entry_to_pb, some), key=_by_header) for some in (got, sent)]
    equal(in_order[0], in_order[1], "the entries that were relayed")


def _by_header(entry: log_pb2.Entry) -> bytes:
    return entry.header  # the order in which entries are sent is advice (ORD-1)


def _with_unknown_field(history: History) -> Entry:
    """Write a message whose header has a field of number 200."""
    plain = history.writer("owner", epoch=2).write(
        history.id, said("of a newer version"), parents=[history.genesis]
    )
    header = plain.header_bytes + b"\xc2\x0c\x02hi"
    return codec.decode_entry(header, sign(header, history.owner.key), plain.body)


@_theme.shows("VER-4", "PROM-18")
async def unknown_numbers_pass_unchanged(run: HubRun) -> None:
    """An unknown role and speaker pass byte by byte; the unknown role makes nobody a member."""
    history = run.new()
    stranger = history.writer("stranger")
    owner = await run.push_all(history)
    reader = await opened(owner, history)
    parents = [history.genesis]
    grant = Member(Grant(stranger.public, 99))
    sent = [
        history.owner.write(history.id, body, parents=parents)
        for body in (grant, said("by a speaker of a newer version", 99))
    ]
    await push(owner, *sent)
    got: list[Entry] = []
    while len(got) < len(sent):
        got += (await reader.next_of(Entries)).entries
    equal(
        list(map(entry_to_pb, got)), list(map(entry_to_pb, sent)), "the entries that were relayed"
    )
    call = (await run.enter(stranger)).call("Resolve", _about(history))
    equal((await refusal(call)).reason, "CONVERSATION_NOT_FOUND", "the reason for an unknown role")


def _about(history: History) -> pb.ResolveRequest:
    return pb.ResolveRequest(conversation=history.id, id=history.genesis.id)


@_theme.shows("PROM-14", "TRUST-6", "ENT-8")
async def opaque_parts_come_out_as_they_went_in(run: HubRun) -> None:
    """Opaque parts of an unknown issuer are relayed and fetched byte by byte."""
    history = run.new()
    owner = await run.push_all(history)
    reader = await opened(owner, history)
    part = Opaque("https://issuer.invalid", dialect="x/1", purpose=77, data=bytes(range(256)))
    entry = history.write(Message(Speaker.USER, (part,)))
    await push(owner, entry)
    wanted = entry_to_pb(entry)
    (relayed,) = (await reader.next_of(Entries)).entries
    equal(entry_to_pb(relayed), wanted, "the entry that was relayed")
    (response,) = await fetch(owner, history.id, ids=[entry.id])
    equal(list(response.entries), [wanted], "the entry that was fetched")
