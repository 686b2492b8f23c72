"""The queue of one stream is counted in the bytes that will be written."""

from replica import limits
from replica.ids import ConversationId, EntryId, Lane, Position, PublicKey
from replica.limits import OUTBOX_MESSAGES_MAX
from replica.link.frame import Frame
from replica.link.messages import Ack, Pong
from syncd.hint import Hint, OwnHead
from syncd.io.outbox import Item, Outbox

CONVERSATION = ConversationId(bytes(32))


class Stream:
    """An outbox, and the number of calls of `on_stall`."""

    def __init__(self) -> None:
        self.stalls = 0
        self.outbox = Outbox(self._on_stall)

    def _on_stall(self) -> None:
        self.stalls += 1

    def put(self, item: Item, times: int) -> None:
        for _ in range(times):
            self.outbox.put(item)


async def test_a_frame_counts_with_its_bytes() -> None:
    stream = Stream()
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(limits.IDS_PER_FRAME))
    frame = Frame.of(Ack(CONVERSATION, ids), "to_client")
    fitting = limits.OUTBOX_BYTES_MAX // len(frame.data)
    stream.put(frame, fitting)
    assert stream.stalls == 0
    stream.put(frame, 1)
    assert stream.stalls == 1


async def test_many_small_frames_are_bounded_by_their_number() -> None:
    stream = Stream()
    frame = Frame.of(Pong(1), "to_client")
    stream.put(frame, OUTBOX_MESSAGES_MAX)
    assert stream.stalls == 0
    stream.put(frame, 1)
    assert stream.stalls == 1


async def test_many_hints_are_bounded_by_their_number() -> None:
    stream = Stream()
    hint = Hint(CONVERSATION, None, (), 0, (), ())
    stream.put(hint, OUTBOX_MESSAGES_MAX + 1)
    assert stream.stalls == 1


async def test_a_hint_counts_with_the_lanes_of_its_reader() -> None:
    """A key may have many lanes, and each append makes a hint that names all of them."""
    stream = Stream()
    head = OwnHead(Position(Lane(PublicKey(bytes(32)), 0, 1), 0, EntryId(bytes(32))), 1)
    heads = (head,) * limits.LANES_PER_KEY_MAX
    hint = Hint(CONVERSATION, None, (), 0, heads, ())
    stream.put(hint, limits.OUTBOX_BYTES_MAX // (64 * limits.LANES_PER_KEY_MAX))
    assert stream.stalls == 1


async def test_a_stalled_outbox_accepts_nothing_more() -> None:
    stream = Stream()
    stream.put(Frame.of(Pong(1), "to_client"), 2 * OUTBOX_MESSAGES_MAX)
    assert stream.stalls == 1
