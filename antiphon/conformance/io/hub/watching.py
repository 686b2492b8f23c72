"""Cases of chapter 04 §9: Watch, its hints, answers and beats."""

import asyncio
from typing import Any

import grpc

from antiphon.conformance.cases import equal, wrong
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import (
    CHANNEL_OPTIONS,
    END,
    PATIENCE_S,
    Caller,
    refusal,
    refusal_of,
)
from antiphon.conformance.io.hub.run import TABLE, HubRun, push
from antiphon.conformance.writers import Writer, said
from antiphon.v1 import sync_pb2 as pb
from replica.link import heads_to_pb
from replica.log import Entry, Role, entry_from_pb

_theme = TABLE.theme("watching")


class Watched:
    """The events of one Watch."""

    def __init__(self, caller: Caller, history: History, **more: Any) -> None:
        """Begin a Watch."""
        request = pb.WatchRequest(conversation=history.id, **more)
        self.stream = caller.sync.Watch(request, metadata=caller.metadata)

    async def next(self, patience_s: float = PATIENCE_S) -> pb.WatchResponse:
        """Return the next event. Raises Violation at the end of the Watch."""
        try:
            async with asyncio.timeout(patience_s):
                found = await self.stream.read()
        except grpc.aio.AioRpcError as error:
            wrong(f"a Watch ended: {refusal_of(error).reason}")
        if found is END:
            wrong("a Watch ended without a reason")
        return found  # type: ignore[no-any-return]

    async def until_hint(self) -> tuple[list[pb.WatchResponse], pb.Hint]:
        """Return the events before the next Hint, but for beats, and the Hint."""
        events: list[pb.WatchResponse] = []
        while not (event := await self.next()).HasField("hint"):
            if not event.HasField("beat"):
                events.append(event)
        return events, event.hint


def _ids(events: list[pb.WatchResponse]) -> list[bytes]:
    return [entry_from_pb(e).id for event in events for e in event.entries.entries]


def _names(events: list[pb.WatchResponse]) -> list[str]:
    return [event.WhichOneof("event") or "" for event in events]


async def _with_host(run: HubRun) -> tuple[History, Writer, Caller, Caller]:
    """Push a conversation with a host and a message; return it, the host, the owner and it."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    return history, host, await run.push_all(history), await run.enter(host)


@_theme.shows("LINK-27", "PROM-7")
async def a_watch_sends_the_log_then_new_entries_each_with_a_hint(run: HubRun) -> None:
    """A Watch from an empty cursor sends all entries and a Hint, then each new one and a Hint."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    watch = Watched(owner, history)
    events, hint = await watch.until_hint()
    equal(_ids(events), [e.id for e in history.entries], "the entries of a Watch")
    check_hint(hint, history, history.last, tip=None)
    entry = history.say("live")
    await push(owner, entry)
    events, hint = await watch.until_hint()
    equal(_ids(events), [entry.id], "the new entries of a Watch")
    check_hint(hint, history, entry, tip=None)


def check_hint(hint: pb.Hint, history: History, last: Entry, tip: Entry | None) -> None:
    """Compare a Hint for the owner with the log. Raises Violation."""
    wanted_tip = tip.id if tip is not None else b""
    equal((hint.tip, hint.basis), (wanted_tip, wanted_tip), "tip and basis of a Hint")
    equal(list(hint.parents), [last.id], "the parents of a Hint")
    lamport = 1 + max(e.header.lamport for e in (last, tip) if e is not None)
    equal(hint.lamport, lamport, "the lamport of a Hint")
    log = history.held.log
    equal(list(hint.membership_heads), list(log.membership_heads()), "its membership heads")
    wanted = sorted(
        (head.lane.track, head.seq, bytes(head.id), log.entries[head.id].header.lamport)
        for head in log.heads()
        if head.lane.author == history.owner.public
    )
    found = [(head.track, head.seq, head.id, head.lamport) for head in hint.own_heads]
    equal(sorted(found), wanted, "the own heads of a Hint")


@_theme.shows("PROM-7", "LINK-27")
async def a_watch_goes_on_from_its_cursor(run: HubRun) -> None:
    """A Watch from the heads held sends the entries behind them, and nothing twice."""
    history = run.new()
    history.say("one")
    owner = await run.push_all(history)
    cursor = heads_to_pb(history.held.log.heads())
    events, _ = await Watched(owner, history, cursor=cursor).until_hint()
    equal(_ids(events), [], "the entries of a Watch from all heads")
    behind = [history.say("two"), history.say("three")]
    await push(owner, *behind)
    events, _ = await Watched(owner, history, cursor=cursor).until_hint()
    equal(_ids(events), [e.id for e in behind], "the entries behind the cursor")


@_theme.shows("LINK-87")
async def a_cursor_of_another_history_is_refused(run: HubRun) -> None:
    """A cursor that names another entry at a position ends the Watch: CURSOR_DIVERGED."""
    history = run.new()
    twin = history.owner.restored()
    other = twin.write(history.id, said("other"), parents=[history.genesis])
    history.say("the hub's")
    owner = await run.push_all(history)
    watch = Watched(owner, history, cursor=heads_to_pb([other.position]))
    equal((await refusal(watch.stream)).reason, "CURSOR_DIVERGED", "the reason")
    ahead = history.draw(said("the hub lacks it"))
    cursor = heads_to_pb([history.genesis.position, ahead.position])
    await Watched(owner, history, cursor=cursor).until_hint()


@_theme.shows("LINK-84", "LINK-85")
async def an_answer_is_named_before_the_hint_that_covers_it(run: HubRun) -> None:
    """The Hint names the open request; behind its generation come Answered, and then the Hint."""
    history, host, owner, host_caller = await _with_host(run)
    watch = Watched(owner, history)
    _, hint = await watch.until_hint()
    equal(hint.open_request, b"", "the open request without one")
    request = history.ask(host.public)
    await push(owner, request)
    _, hint = await watch.until_hint()
    equal(hint.open_request, request.id, "the open request")
    seal = history.seal(request, host)
    await push(host_caller, seal)
    _, hint = await watch.until_hint()
    equal((hint.tip, hint.open_request), (seal.id, request.id), "tip and open request")
    answer = history.answer(seal, host)
    await push(host_caller, answer)
    events, hint = await watch.until_hint()
    equal(_names(events), ["entries", "answered"], "the events of an answer")
    wanted = pb.Answered(request=request.id, seal=seal.id, generation=answer.id)
    equal(events[1].answered, wanted, "Answered")
    equal(hint.open_request, b"", "the open request after its answer")
    check_hint(hint, history, answer, seal)


@_theme.shows("LINK-84")
async def a_refusal_is_named_without_a_seal(run: HubRun) -> None:
    """A request that its host refuses is named in Answered without a seal."""
    history, host, owner, host_caller = await _with_host(run)
    request = history.ask(host.public)
    await push(owner, request)
    watch = Watched(owner, history)
    await watch.until_hint()
    refused = history.refuse(request, host)
    await push(host_caller, refused)
    events, hint = await watch.until_hint()
    wanted = pb.Answered(request=request.id, generation=refused.id)
    equal([e.answered for e in events if e.HasField("answered")], [wanted], "Answered")
    equal(hint.open_request, b"", "the open request after its refusal")


@_theme.shows("LINK-85")
async def a_queued_request_is_open_behind_the_answer_before_it(run: HubRun) -> None:
    """While the tip's request is open it is the one named; then the one queued behind it."""
    history, host, owner, host_caller = await _with_host(run)
    first = history.ask(host.public)
    second = history.ask(host.public, after=history.say("more", after=first))
    await push(owner, *history.entries)
    _, hint = await Watched(owner, history).until_hint()
    equal(hint.open_request, first.id, "the open request of two")
    seal = history.seal(first, host)
    await push(host_caller, seal)
    await push(host_caller, history.answer(seal, host))
    _, hint = await Watched(owner, history).until_hint()
    equal(hint.open_request, second.id, "the open request behind an answer")


@_theme.shows("LINK-81", needs="--wait")
async def a_watch_has_beats(run: HubRun) -> None:
    """A Watch without events carries a Beat every 20 s."""
    history = run.new()
    owner = await run.push_all(history)
    beat_s = run.allow(run.scale.beat * 1.5 + 1)
    watch = Watched(owner, history)
    await watch.until_hint()
    for _ in range(2):
        event = await watch.next(beat_s)
        equal(event.WhichOneof("event"), "beat", "the event of a silent Watch")


@_theme.shows("LINK-82", needs="--wait")
async def a_keepalive_every_10_s_is_permitted(run: HubRun) -> None:
    """A connection that sends a gRPC keepalive every 10 s is not ended for it."""
    history = run.new()
    await run.push_all(history)
    period_s = run.scale.keepalive
    wait_s = run.allow(period_s * 4.5)
    options = (
        ("grpc.keepalive_time_ms", round(period_s * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    channel = grpc.aio.insecure_channel(run.address, options=(*CHANNEL_OPTIONS, *options))
    caller = await Caller(run.address, history.owner.key, channel).enter()
    watch = Watched(caller, history)
    await watch.until_hint()
    ends_at = asyncio.get_running_loop().time() + wait_s
    while (left_s := ends_at - asyncio.get_running_loop().time()) > 0:
        try:
            event = await watch.next(left_s)
        except TimeoutError:
            break
        equal(event.WhichOneof("event"), "beat", "the event of a silent Watch")
    await caller.close()
