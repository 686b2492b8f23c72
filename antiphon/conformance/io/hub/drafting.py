"""Cases of chapter 04 §6: drafts of a host, at live and late readers."""

from dataclasses import dataclass, replace

from antiphon.conformance.cases import equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, RawLink
from antiphon.conformance.io.hub.run import (
    TABLE,
    HubRun,
    acked,
    faults_of,
    greet,
    opened,
    push,
)
from antiphon.conformance.io.hub.watching import Watched
from antiphon.conformance.writers import Writer
from antiphon.v1 import sync_pb2 as pb
from replica.conversation import Draft, sign_draft
from replica.ids import Digest
from replica.link import Entries, Message, draft_to_pb
from replica.log import Entry, Generation, Role

_theme = TABLE.theme("drafting")

WORDS = ("Par", "is", ".")


@dataclass(slots=True)
class Turn:
    """A request with a seal, whose answer a host is to stream."""

    history: History
    host: Writer
    request: Entry
    seal: Entry
    owner: Caller
    link: RawLink
    """The host's."""

    @property
    def frames(self) -> list[Draft]:
        """The frames of its draft, one token each."""
        return self.history.drafts(self.request, self.host, WORDS)


async def _turn(run: HubRun) -> Turn:
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    request = history.ask(host.public)
    owner = await run.push_all(history)
    link = await opened(await run.enter(host), history)
    seal = history.seal(request, host)
    await link.send(Entries(history.id, (seal,)))
    await acked(link, seal)
    return Turn(history, host, request, seal, owner, link)


def _drafts(messages: list[Message]) -> list[Draft]:
    return [m for m in messages if isinstance(m, Draft)]


@_theme.shows("LINK-17", "LINK-70", "PROM-7")
async def drafts_reach_the_readers_in_order(run: HubRun) -> None:
    """Each frame of a sealing host reaches the links that asked for drafts, as it was signed."""
    turn = await _turn(run)
    reader = await opened(turn.owner, turn.history, drafts=True)
    silent, unopened = await opened(turn.owner, turn.history), await greet(turn.owner)
    await turn.link.send(*turn.frames)
    equal(faults_of(await turn.link.until_pong()), [], "the faults for drafts")
    equal(_drafts(await reader.until_pong()), turn.frames, "the drafts that a reader got")
    equal(_drafts(await silent.until_pong()), [], "the drafts of a link that asked for none")
    equal(_drafts(await unopened.until_pong()), [], "the drafts of a link without an Open")


@_theme.shows("LINK-17", "LINK-70", "PROM-9")
async def wrong_drafts_are_dropped(run: HubRun) -> None:
    """A frame with a wrong signature, a gap, a wrong offset or digest reaches nobody."""
    turn = await _turn(run)
    reader = await opened(turn.owner, turn.history, drafts=True)
    first, second, third = turn.frames
    host = turn.host.key
    await turn.link.send(first)
    for wrong_one in (
        replace(second, signature=bytes(64)),
        replace(second, data=b"XX"),
        third,
        first,
        sign_draft(replace(second, digest=Digest(bytes(32))), host),
        sign_draft(replace(second, byte_offset=second.byte_offset + 1), host),
        sign_draft(second, turn.history.owner.key),
    ):
        await turn.link.send(wrong_one)
    await turn.link.send(second)
    await turn.link.until_pong()
    equal(_drafts(await reader.until_pong()), [first, second], "the drafts that a reader got")


@_theme.shows("LINK-17")
async def a_draft_of_another_key_is_forbidden(run: HubRun) -> None:
    """A draft that another key than the sealing host sends is answered with ROLE_FORBIDS."""
    turn = await _turn(run)
    reader = await opened(turn.owner, turn.history, drafts=True)
    other = await opened(turn.owner, turn.history)
    await other.send(turn.frames[0])
    found = [fault.reason for fault in faults_of(await other.until_pong())]
    equal(found, ["ROLE_FORBIDS"], "the reasons for a draft of the owner")
    equal(_drafts(await reader.until_pong()), [], "the drafts that a reader got")


@_theme.shows("LINK-17")
async def a_draft_without_an_open_seal_is_dropped(run: HubRun) -> None:
    """A draft of a request without a seal, or with its answer, reaches nobody."""
    turn = await _turn(run)
    history, host = turn.history, turn.host
    answer = history.answer(turn.seal, host)
    unsealed = history.ask(host.public, after=answer, basis=turn.seal)
    await turn.link.send(Entries(history.id, (answer,)))
    await acked(turn.link, answer)
    await push(turn.owner, unsealed)
    reader = await opened(turn.owner, history, drafts=True)
    await turn.link.send(*turn.frames, *history.drafts(unsealed, host, WORDS))
    await turn.link.until_pong()
    equal(_drafts(await reader.until_pong()), [], "the drafts that a reader got")


@_theme.shows("LINK-19", "LINK-88", "PROM-7")
async def a_late_reader_gets_the_running_draft(run: HubRun) -> None:
    """A link and a Watch that begin in mid-answer get the draft from offset 0, then the rest."""
    turn = await _turn(run)
    first, second, third = turn.frames
    await turn.link.send(first, second)
    await turn.link.until_pong()
    reader = await opened(turn.owner, turn.history, drafts=True)
    watches = [Watched(turn.owner, turn.history, drafts=True) for _ in range(2)]
    begun = [await _until_token(watch, 1) for watch in watches]
    await turn.link.send(third)
    await turn.link.until_pong(8)
    equal(_joined(_drafts(await reader.until_pong())), b"Paris.", "the draft of a late link")
    for watch, frames in zip(watches, begun, strict=True):
        found = [*frames, *await _until_token(watch, 2)]
        equal(found, [draft_to_pb(frame) for frame in turn.frames], "the frames of a late Watch")


@_theme.shows("LINK-88")
async def a_watch_without_drafts_gets_none(run: HubRun) -> None:
    """A Watch that does not ask for drafts gets the answer without them."""
    turn = await _turn(run)
    watch = Watched(turn.owner, turn.history)
    await watch.until_hint()
    await turn.link.send(*turn.frames)
    await turn.link.until_pong()
    answer = turn.history.answer(turn.seal, turn.host)
    await turn.link.send(Entries(turn.history.id, (answer,)))
    events, _ = await watch.until_hint()
    equal([e.WhichOneof("event") for e in events], ["entries", "answered"], "the events of a Watch")


async def _until_token(watch: Watched, token: int) -> list[pb.Draft]:
    """Return the frames that come up to the one of a token."""
    frames: list[pb.Draft] = []
    while not frames or frames[-1].token_offset < token:
        event = await watch.next()
        frames += [event.draft] if event.HasField("draft") else []
    return frames


def _joined(frames: list[Draft]) -> bytes:
    shown = bytearray()
    for frame in frames:
        equal(frame.byte_offset, len(shown), "the byte offset of a frame")
        shown += frame.data
    return bytes(shown)


@_theme.shows("LINK-17", "LINK-19")
async def another_run_replaces_the_draft(run: HubRun) -> None:
    """Offset 0 of another run begins the draft anew, for late readers too."""
    turn = await _turn(run)
    again = turn.history.drafts(turn.request, turn.host, ("Lyon",), run=2)
    reader = await opened(turn.owner, turn.history, drafts=True)
    await turn.link.send(*turn.frames, *again)
    await turn.link.until_pong()
    equal(_drafts(await reader.until_pong()), [*turn.frames, *again], "the drafts of a reader")
    late = await opened(turn.owner, turn.history, drafts=True)
    equal(_drafts(await late.until_pong()), again, "the drafts of a late reader")


@_theme.shows("LINK-19", "LINK-18", "PROM-9")
async def a_draft_ends_with_the_answer(run: HubRun) -> None:
    """A reader that comes after the answer gets it with the digest of the draft, and no draft."""
    turn = await _turn(run)
    reader = await opened(turn.owner, turn.history, drafts=True)
    frames = turn.history.drafts(turn.request, turn.host, ("Yes", "."))
    await turn.link.send(*frames)
    answer = turn.history.answer(turn.seal, turn.host)
    await turn.link.send(Entries(turn.history.id, (answer,)))
    await acked(turn.link, answer)
    found = await reader.until_pong()
    body = turn.history.held.log.body(answer.id)
    assert isinstance(body, Generation)
    equal(_drafts(found)[-1].digest, body.draft_digest, "the digest after the last token")
    late = await opened(turn.owner, turn.history, drafts=True)
    equal(_drafts(await late.until_pong()), [], "the drafts behind an answer")
