"""Attacks of bench/abuse.py on the memory of a hub: lists of ids, and drafts (line 12).

The memory is that of the objects which the hub keeps of the frames, as tracemalloc counts it. What
line 12 names besides is kept by drivers: bench/abuse_hub.py measures answers that nobody reads,
pending entries and small blobs in a hub's process.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle, islice

from bench.abuse_scene import HOST, READER, Row, Scene, messages, scene
from bench.hostile_logs import ANY, Pen, Talk
from replica.conversation import Draft, extend_digest, sign_draft, start_digest
from replica.ids import EntryId
from replica.limits import IDS_PER_FRAME
from replica.link import Frame, Ids, Open

ABSENT_IDS = "ids in pieces, not here"
HELD_IDS = "ids in pieces, all here"
ONE_TOKEN = "draft of n frames"
PIECES = 8
"""Frames of a list of ids that never ends: 2 MB."""
TOKENS_PER_FRAME = 8_000
"""Token ids of two bytes each that fit a frame (ITEMS_PER_FRAME_MAX)."""
TIMED = 3
"""Frames that are timed, behind those whose memory is measured."""
FRAMES_MAX, TOKENS_MAX = 20_000 - TIMED, 400_000 - TIMED * TOKENS_PER_FRAME
"""A draft of more than these, with the timed frames, is dropped (DRAFT_BYTES_MAX)."""


def ids_absent(n: int) -> Row:
    """List ids that are not here, without an end, in a conversation of n entries."""
    ids = (EntryId(number.to_bytes(32, "big")) for number in range(PIECES * IDS_PER_FRAME))
    return _listed(ABSENT_IDS, n, messages(n), ids)


def ids_held(n: int) -> Row:
    """List the ids that are here again and again, without an end."""
    at = messages(n)
    return _listed(HELD_IDS, n, at, cycle([entry.id for entry in at.talk.entries]))


def _listed(attack: str, n: int, at: Scene, ids: Iterable[EntryId]) -> Row:
    """Measure the time of a frame on one link, and the memory of all of them on another."""
    listed = iter(ids)
    pieces = [
        Ids(at.talk.id, tuple(islice(listed, IDS_PER_FRAME)), more=True) for _ in range(PIECES)
    ]
    timed, traced = at.link(at.pens[READER]), at.link(at.pens[READER])
    for link_id in (timed, traced):
        at.frame(link_id, Open(at.talk.id, ANY))
    ms = min(at.frame(timed, pieces[0])[0] for _ in pieces)  # the first time, its ids are new
    frames = [Frame.of(piece, "to_hub").data for piece in pieces]
    grown = at.grown_bytes(traced, frames)
    return Row(attack, 12, n, ms, sum(map(len, frames)), grown, at.append_ms())


def draft_frames(n: int) -> Row:
    """Stream an answer of n frames, at most 20,000, of a token and no byte each."""
    return _streamed(ONE_TOKEN, n, [1] * min(n, FRAMES_MAX))


def draft_tokens(n: int) -> Row:
    """Stream an answer of n tokens, at most 400,000, in frames of as many as fit."""
    full, rest = divmod(min(n, TOKENS_MAX), TOKENS_PER_FRAME)
    return _streamed("draft of n tokens", n, [TOKENS_PER_FRAME] * full + [rest] * (rest > 0))


def _streamed(attack: str, n: int, sizes: list[int]) -> Row:
    """Measure the memory of the frames, then the time of some more behind them."""
    at = scene(_sealed)
    drafts = _drafts(at.talk, at.pens[HOST], [*sizes, *sizes[-1:] * TIMED])
    frames = [Frame.of(draft, "to_hub").data for draft in islice(drafts, len(sizes))]
    link_id = at.link(at.pens[HOST])
    grown = at.grown_bytes(link_id, frames)
    ms = min(at.frame(link_id, draft)[0] for draft in drafts)
    return Row(attack, 12, n, ms, sum(map(len, frames)), grown, at.append_ms())


def _sealed(talk: Talk, pens: dict[int, Pen]) -> None:
    """Ask the host, which begins an answer and never ends it."""
    said = talk.entries[4:]
    request = talk.request(pens[HOST])
    talk.seal(pens[HOST], request, [*said, request])


def _drafts(talk: Talk, host: Pen, sizes: Iterable[int]) -> Iterator[Draft]:
    request = talk.entries[-2].id
    digest, offset = start_digest(request, 1), 0
    for size in sizes:
        tokens = tuple(range(1_000, 1_000 + size))
        digest = extend_digest(digest, tokens)
        yield sign_draft(Draft(talk.id, request, 1, offset, tokens, 0, b"", digest), host.key)
        offset += size
