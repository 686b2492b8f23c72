"""Every frame is encoded once: the counted bytes are the bytes written."""

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.ids import Digest, PublicKey
from replica.link.codec import Direction, decode_frame
from replica.link.effects import Effects
from replica.link.exchange import Side
from replica.link.frame import Frame
from replica.link.link import Link
from replica.link.messages import (
    Ack,
    Entries,
    Fault,
    Hello,
    Ids,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.log.entry import Entry
from tests.support.writers import Writer, said

ADA, HUB = Writer(1), Writer(99).public


def conversation(size: int) -> tuple[Conversation, list[Entry]]:
    """Return a conversation of Ada's, and its entries."""
    entries = [ADA.genesis()]
    for number in range(size):
        text = said(str(number) * (number + 1))
        entries.append(ADA.write(entries[0].conversation, text, parents=entries[-1:]))
    return Conversation.restore(entries[0].conversation, entries), entries


def counted_bytes(*effects: Effects) -> int:
    """Return the bytes of the frames that LINK-4 counts."""
    frames = [frame for one in effects for frame in one.send]
    return sum(len(f.data) for f in frames if isinstance(f.message, (Entries, Ids)))


@pytest.mark.parametrize("direction", ["to_hub", "to_client"])
def test_a_frame_holds_the_bytes_of_its_message(direction: Direction) -> None:
    held, entries = conversation(2)
    messages: list[Message] = [
        Entries(held.id, tuple(entries)),
        Ids(held.id, tuple(e.id for e in entries), True),
        Fault("REASON", "detail"),
    ]
    for message in messages:
        frame = Frame.of(message, direction)
        assert frame.message is message
        assert decode_frame(frame.data, direction) == message


def test_a_heartbeat_names_the_bytes_of_the_frames_sent() -> None:
    held, _ = conversation(5)
    shelf = MemoryShelf([held])
    link = Link(Side.CLIENT, key=ADA.public, peer=None, shelf=shelf, now=0.0)
    link.start(Hello((1,)))
    link.receive(Welcome(1, HUB, limits.FRAME_BYTES_MAX, limits.CREDIT_BYTES, 60_000), 0.0)
    opened = link.open(held.id, 0.0)
    compared = link.receive(Opened(held.id, Digest(bytes(32)), False, (), 1), 0.0)
    entry = ADA.write(held.id, said("more"), parents=[held.log.entries[held.id]])
    appended = link.append(entry, 0.0)
    heartbeat = link.handle_deadline(limits.HEARTBEAT_S)
    named = {f.message.sent_bytes for f in heartbeat.send if isinstance(f.message, Ping)}
    assert counted_bytes(compared) and counted_bytes(appended)
    assert named == {counted_bytes(opened, compared, appended)}


def test_a_hub_answers_a_heartbeat_with_the_bytes_of_the_frames_sent() -> None:
    held, _ = conversation(5)
    link = Link(Side.HUB, key=HUB, peer=ADA.public, shelf=MemoryShelf([held]), now=0.0)
    link.receive(Hello((1,)), 0.0)
    opened = link.receive(Open(held.id, Digest(bytes(32)), ()), 0.0)
    asked = link.receive(Ids(held.id, ()), 0.0, 40)
    answer = link.receive(Ping(1), 0.0)
    pong = answer.send[0].message
    assert isinstance(pong, Pong)
    assert pong.sent_bytes == counted_bytes(opened, asked) > 0


def test_both_sides_encode_for_their_own_direction() -> None:
    held, entries = conversation(1)
    hub = Link(Side.HUB, key=HUB, peer=ADA.public, shelf=MemoryShelf(), now=0.0)
    client = Link(Side.CLIENT, key=ADA.public, peer=None, shelf=MemoryShelf([held]), now=0.0)
    (hello,) = client.start(Hello((1,))).send
    assert decode_frame(hello.data, "to_hub") == hello.message
    (welcome,) = hub.receive(hello.message, 0.0).send
    assert decode_frame(welcome.data, "to_client") == welcome.message
    pushed = hub.receive(Entries(held.id, tuple(entries)), 0.0)
    (ack,) = pushed.send
    assert isinstance(ack.message, Ack)
    assert decode_frame(ack.data, "to_client") == ack.message


def test_frames_unsent_for_want_of_credit_are_not_counted() -> None:
    held, entries = conversation(1)
    big = [ADA.write(held.id, said("x" * 500_000), parents=[entries[-1]]) for _ in range(8)]
    for entry in big:
        held.admit(entry)
    link = Link(Side.HUB, key=HUB, peer=PublicKey(ADA.public), shelf=MemoryShelf([held]), now=0.0)
    link.receive(Hello((1,)), 0.0)
    sent = counted_bytes(link.receive(Open(held.id, Digest(bytes(32)), ()), 0.0))
    for number in range(8):  # each message received lets the hub send a further part
        effects = link.receive(Ping(number), 0.0)
        (pong,) = (frame for frame in effects.send if isinstance(frame.message, Pong))
        assert pong.message.sent_bytes == sent
        sent += counted_bytes(effects)
    # No counted frame begins once the limit is reached; the last may go beyond it.
    assert limits.CREDIT_BYTES <= pong.message.sent_bytes < 8 * 500_000
