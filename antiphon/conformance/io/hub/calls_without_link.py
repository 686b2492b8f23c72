"""Cases of chapter 04 §9: Push, Resolve, Fetch, and the form of errors."""

import json
from typing import Any

import grpc

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import forged, void_message
from antiphon.conformance.io.calls import RawLink, refusal, refusal_of
from antiphon.conformance.io.core import VECTORS
from antiphon.conformance.io.hub.run import (
    TABLE,
    HubRun,
    fetch,
    greet,
    outcomes,
    push,
    reasons,
    resolve,
)
from antiphon.conformance.writers import Writer, said
from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.limits import FETCH_IDS_MAX
from replica.link import Close, Hello, HostInfo
from replica.log import Role, Tools, entry_id, entry_to_pb, send_order

_theme = TABLE.theme("calls")
DECODER_TEXTS = (
    "error parsing", "failed to parse", "failed to decode", "protobuf", "proto:",
    "protocol message", "wire type", "wire-format", "out of range", "deserializ", "exception",
    "traceback", "panic",
)  # fmt: skip
"""Parts of the texts of the usual decoders and runtimes."""


@_theme.shows("LINK-24", "PROM-6", "PROM-4")
async def each_outcome_is_durable_or_a_fault(run: HubRun) -> None:
    """A Push has one outcome for each entry, in its order; the durable ones come again so."""
    history = run.new()
    owner = await run.push_all(history)
    good = history.draw(said("good"))
    late = history.draw(said("behind a lost one"), after=history.draw(said("lost")))
    sent = (history.genesis, forged(history.draw(said("bad"))), late, good)
    first, again = [await outcomes(owner, sent) for _ in range(2)]
    equal([o.id for o in first], [e.id for e in sent], "the ids of the outcomes")
    found = [o.durable or o.fault.reason for o in first]
    equal(found[:2], [True, "SIGNATURE_INVALID"], "the outcomes")
    equal(found[2], "ENTRIES_MISSING", "the outcome of an entry behind one that was not sent")
    equal([o.durable for o in again], [o.durable for o in first], "the outcomes of the same again")


@_theme.shows("LINK-24", "PROM-5")
async def a_push_keeps_nothing_pending(run: HubRun) -> None:
    """An entry whose parent is missing is refused with its id, and is unknown afterwards."""
    history = run.new()
    owner = await run.push_all(history)
    lost = history.draw(said("lost"))
    late = history.draw(said("late"), after=lost)
    (found,) = await outcomes(owner, [late])
    equal((found.durable, found.fault.reason), (False, "ENTRIES_MISSING"), "the outcome")
    equal(list(found.fault.missing), [lost.id], "the missing ids")
    equal((await resolve(owner, history, late.id)).fate, pb.FATE_UNKNOWN, "the fate")
    await push(owner, lost)
    equal((await resolve(owner, history, late.id)).fate, pb.FATE_UNKNOWN, "the fate afterwards")


@_theme.shows("LINK-80", "PROM-17")
async def unreadable_entries_are_refused_in_the_outcomes(run: HubRun) -> None:
    """A Push that nobody can read has an outcome for each entry, with or without conversation."""
    history = run.new()
    owner = await run.push_all(history)
    torn = [log_pb2.Entry(header=b"\x90\x00\x05"), log_pb2.Entry(header=b"")]
    for conversation in (b"", history.id):
        request = pb.PushRequest(conversation=conversation, entries=torn)
        found = (await owner.call("Push", request)).outcomes
        equal([o.fault.reason for o in found], ["WIRE_MALFORMED", "FIELD_INVALID"], "the reasons")
        equal([o.id for o in found], [entry_id(e.header) for e in torn], "the ids of the outcomes")


@_theme.shows("LINK-80", "LINK-6")
async def a_push_beyond_a_frame_is_not_looked_at(run: HubRun) -> None:
    """A Push of more than 1 MiB ends with FRAME_TOO_LARGE, and nothing of it is durable."""
    history = run.new()
    owner = await run.push_all(history)
    parts = [history.write(said("x" * size)) for size in (500_000, 500_000, 60_000)]
    request = pb.PushRequest(entries=map(entry_to_pb, parts))
    equal((await refusal(owner.call("Push", request))).reason, "FRAME_TOO_LARGE", "the reason")
    equal((await resolve(owner, history, parts[0].id)).fate, pb.FATE_UNKNOWN, "the fate")
    for part in parts:
        await push(owner, part)


@_theme.shows("LINK-86")
async def entries_without_effect_are_durable_with_a_warning(run: HubRun) -> None:
    """Void bodies, and requests to a host that is not granted or not linked, have warnings."""
    history = run.new()
    host = history.writer("host")
    owner = await run.push_all(history)
    void = history.write(void_message())
    asked = history.ask(host.public)
    found = await outcomes(owner, [void, asked])
    equal([o.durable for o in found], [True, True], "the outcomes")
    equal([o.warning.reason for o in found], ["BODY_VOID", "HOST_UNGRANTED"], "the warnings")
    await push(owner, history.grant(host.public, Role.HOST))
    (found,) = [await outcomes(owner, [history.ask(host.public)])]
    equal(found[0].warning.reason, "HOST_ABSENT", "the warning for a host that is not linked")
    link = await greet(await run.enter(host), Hello((1,), host=HostInfo(host.public, "", ())))
    (found,) = [await outcomes(owner, [history.ask(host.public)])]
    check(not found[0].HasField("warning"), "a warning for a host that is granted and linked")
    link.cancel()


@_theme.shows("LINK-86")
async def a_body_that_does_not_parse_is_durable_with_a_warning(run: HubRun) -> None:
    """A message whose body does not parse is durable, and its outcome warns: BODY_VOID."""
    history = run.new()
    owner = await run.push_all(history)
    torn = history.owner.write(history.id, Tools(()), parents=[history.genesis], kind=3)
    found = await outcomes(owner, [torn, history.draw(said("fine"), after=torn)])
    equal([o.durable for o in found], [True, True], "the outcomes")
    equal(found[0].warning.reason, "BODY_VOID", "the warning")
    check(not found[1].HasField("warning"), "a warning for a message with text")


@_theme.shows("PROM-6")
async def resolve_names_the_fate_of_each_entry(run: HubRun) -> None:
    """Resolve distinguishes unknown and durable, and names a request's seal and generation."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    owner = await run.push_all(history)
    host_caller = await run.enter(host)
    request = history.ask(host.public)
    unsent = await resolve(owner, history, request.id)
    equal(unsent, pb.ResolveResponse(fate=pb.FATE_UNKNOWN), "the fate before the Push")
    await push(owner, request)
    found = await resolve(owner, history, request.id)
    equal(found, pb.ResolveResponse(fate=pb.FATE_DURABLE), "the fate without a seal")
    seal = history.seal(request, host)
    await push(host_caller, seal)
    found = await resolve(owner, history, request.id)
    equal((found.seal, found.generation), (seal.id, b""), "the seal and generation")
    answer = history.answer(seal, host)
    await push(host_caller, answer)
    found = await resolve(owner, history, request.id)
    equal((found.seal, found.generation), (seal.id, answer.id), "the seal and generation")


@_theme.shows("PROM-9")
async def a_request_has_one_answer(run: HubRun) -> None:
    """A second seal or generation of a request is durable and changes no answer."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    request = history.ask(host.public)
    seal = history.seal(request, host)
    answer = history.answer(seal, host)
    body = history.held.log.body(answer.id)
    assert body is not None
    other = host.write(history.id, body, parents=[seal], basis=seal)
    await run.push_all(history)
    caller = await run.enter(host)
    equal(await reasons(caller, other), [""], "the outcome of a second generation")
    found = await resolve(caller, history, request.id)
    equal((found.seal, found.generation), (seal.id, answer.id), "the seal and generation")


@_theme.shows("PROM-2")
async def what_comes_late_changes_no_answer(run: HubRun) -> None:
    """An entry of another member from before a seal, sent after the answer, changes neither."""
    history = run.new()
    host, writer = history.writer("host"), history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    history.grant(host.public, Role.HOST)
    request = history.ask(host.public, after=history.say())
    seal = history.seal(request, host)
    history.answer(seal, host)
    await run.push_all(history)
    caller = await run.enter(writer)
    before = await resolve(caller, history, request.id)
    await push(caller, history.say("late", writer, after=history.genesis))
    equal(await resolve(caller, history, request.id), before, "the seal and generation")
    equal(before.seal, seal.id, "the seal")


@_theme.shows("LINK-91")
async def the_bytes_of_the_transcript_are_answered_with_its_bytes(run: HubRun) -> None:
    """The Push of `level1.json`, made while its host is linked, is answered with its bytes."""
    vectors = {v["name"]: v for v in json.loads((VECTORS / "level1.json").read_text())["vectors"]}
    ada, hal = [
        Writer.of_key(bytes.fromhex(vectors[name]["private_key"])) for name in ("genesis", "seal")
    ]
    await greet(await run.enter(hal), Hello((1,), host=HostInfo(hal.public, "", ())))
    owner = await run.enter(ada)
    raw: Any = owner.channel.unary_unary("/antiphon.v1.SyncService/Push", None, None)
    found = await raw(bytes.fromhex(vectors["push"]["request"]), metadata=owner.metadata)
    equal(found.hex(), vectors["push"]["response"], "the response in bytes")


# --- Fetch --------------------------------------------------------------------------------


@_theme.shows("REC-1", "PROM-11")
async def fetch_returns_ids_and_ranges_and_names_absent_ids(run: HubRun) -> None:
    """Fetch returns entries by id and lane range in send order, and the ids it lacks."""
    history = run.new()
    for number in range(5):
        history.say(str(number))
    owner = await run.push_all(history)
    messages = history.entries[1:]
    lane = pb.LaneRange(
        author=history.owner.public,
        epoch=history.owner.epoch,
        track=log_pb2.TRACK_CONVERSATION,
        seq_start=1,
        seq_end=3,
    )
    absent = bytes(32)
    found = await fetch(owner, history.id, ids=[history.genesis.id, absent], ranges=[lane])
    got = [e for response in found for e in response.entries]
    wanted = [history.genesis, *messages[1:3]]
    equal(got, list(map(entry_to_pb, wanted)), "the entries of a Fetch")
    equal(list(found[-1].absent), [absent], "the absent ids")
    lane.seq_end = 0
    rest = [e for r in await fetch(owner, history.id, ranges=[lane]) for e in r.entries]
    equal(rest, list(map(entry_to_pb, messages[1:])), "the entries up to the lane's end")


@_theme.shows("REC-1", "PROM-12")
async def a_range_of_a_forked_lane_has_both_of_its_entries(run: HubRun) -> None:
    """The two entries at one position of a lane are both in a Fetch of its range."""
    history = run.new()
    twin = history.owner.restored()
    both = [twin.write(history.id, said("one"), parents=[history.genesis]), history.say("two")]
    owner = await run.push_all(history)
    await push(owner, both[0])
    lane = pb.LaneRange(
        author=twin.public, epoch=twin.epoch, track=log_pb2.TRACK_CONVERSATION, seq_end=9
    )
    found = await fetch(owner, history.id, ranges=[lane])
    wanted = [entry_to_pb(entry) for entry in sorted(both, key=send_order)]
    equal([e for r in found for e in r.entries], wanted, "the entries of a forked lane")


@_theme.shows("ORD-13", "REC-1", "ORD-16")
async def what_is_not_covered_is_absent(run: HubRun) -> None:
    """An entry behind a cut is UNCOVERED, in no range of a Fetch, and among the absent ids."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    kept, cut_off = history.say("kept", writer), history.say("cut off", writer)
    owner = await run.push_all(history)
    await push(owner, history.revoke(writer.public, kept))
    lane = pb.LaneRange(author=writer.public, epoch=writer.epoch, track=log_pb2.TRACK_CONVERSATION)
    found = await fetch(owner, history.id, ranges=[lane])
    equal([e for r in found for e in r.entries], [entry_to_pb(kept)], "the entries of the lane")
    found = await fetch(owner, history.id, ids=[kept.id, cut_off.id])
    equal([e for r in found for e in r.entries], [entry_to_pb(kept)], "the entries by id")
    equal(list(found[-1].absent), [cut_off.id], "the absent ids")
    fate = (await resolve(owner, history, cut_off.id)).fate
    equal(fate, pb.FATE_UNCOVERED, "the fate of an entry behind a cut")


@_theme.shows("REC-1")
async def headers_are_fetched_without_bodies(run: HubRun) -> None:
    """With headers_only a Fetch leaves out bodies, but for control entries."""
    history = run.new()
    message = history.say()
    owner = await run.push_all(history)
    wanted = [history.genesis.id, message.id]
    found = await fetch(owner, history.id, ids=wanted, headers_only=True)
    bodies = {bytes(e.header): e.HasField("body") for r in found for e in r.entries}
    equal(bodies, {history.genesis.header_bytes: True, message.header_bytes: False}, "the bodies")


@_theme.shows("LIM-4", "ERR-2", "PROM-17")
async def malformed_calls_get_typed_errors(run: HubRun) -> None:
    """Bytes that do not parse, ids of another width and too many ids end a call typed."""
    history = run.new()
    owner = await run.push_all(history)
    raw: Any = owner.channel.unary_unary("/antiphon.v1.SyncService/Push", None, None)
    found = await refusal(raw(b"\xff\xff\xff", metadata=owner.metadata))
    equal(found.reason, "FRAME_MALFORMED", "the reason for bytes that do not parse")
    for request in (
        pb.FetchRequest(conversation=b"short"),
        pb.FetchRequest(conversation=history.id, ids=[bytes(32)] * (FETCH_IDS_MAX + 1)),
    ):
        found = await refusal(owner.sync.Fetch(request, metadata=owner.metadata))
        equal(found.reason, "ARGUMENT_INVALID", "the reason of a Fetch")
    pushed = pb.PushRequest(conversation=b"short")
    found = await refusal(owner.sync.Push(pushed, metadata=owner.metadata))
    equal(found.reason, "ARGUMENT_INVALID", "the reason of a Push")
    watched = pb.WatchRequest(conversation=history.id, cursor=[pb.LaneHead(author=b"short")])
    found = await refusal(owner.sync.Watch(watched, metadata=owner.metadata))
    equal(found.reason, "ARGUMENT_INVALID", "the reason of a Watch")


@_theme.shows("TRUST-7")
async def errors_show_nothing_of_a_decoder(run: HubRun) -> None:
    """The detail for bytes that do not parse has none of the texts of a decoder or a runtime."""
    owner = await run.push_all(run.new())
    details = []
    for data in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0b", b"\x00\x01", b"\x08\x01\x0a"):
        for method in ("Push", "Resolve"):
            raw: Any = owner.channel.unary_unary(f"/antiphon.v1.SyncService/{method}", None, None)
            details.append((await refusal(raw(data, metadata=owner.metadata))).detail)
        link = await greet(owner)
        await link.send_bytes(data)
        details.append(await _detail_of_end(link))
    shown = [d for d in details if any(text in d.lower() for text in DECODER_TEXTS)]
    equal(shown, [], "the details with texts of a decoder")


async def _detail_of_end(link: RawLink) -> str:
    """Return the detail that a link ends with, in a Close or a status."""
    try:
        while (message := await link.read()) is not None:
            if isinstance(message, Close) and message.fault is not None:
                return message.fault.detail
    except grpc.aio.AioRpcError as error:
        return refusal_of(error).detail
    return ""


@_theme.shows("LINK-90", "ERR-1", "PROM-17")
async def errors_have_the_form_of_the_chapter(run: HubRun) -> None:
    """A refused call has a typed trailer: a reason, a next step, and a delay where it may help."""
    history = run.new()
    owner = await run.push_all(history)
    unknown = pb.ResolveRequest(conversation=bytes(32), id=bytes(32))
    found = await refusal(owner.call("Resolve", unknown))
    equal((found.code, found.reason), ("NOT_FOUND", "CONVERSATION_NOT_FOUND"), "the error")
    check(found.next_step, "an error without a next step")
    ticketless = owner.sync.Hosts(pb.HostsRequest(), metadata=())
    found = await refusal(ticketless)
    check(found.next_step, "an error without a next step")
    check(found.is_retryable, "TICKET_INVALID without RetryInfo, though a new ticket helps")
