"""The streams of a key: their number and their lifetime (LINK-28)."""

import pytest

from replica.limits import TICKET_LIFETIME_S
from replica.refusals import QuotaExceeded
from syncd.streams import Streams
from tests.support.writers import Writer

ADA, BOB = Writer(1).public, Writer(2).public


class Held:
    """Streams by name, and the names of the expired ones."""

    def __init__(self, per_key_max: int = 2) -> None:
        self.streams = Streams(per_key_max)
        self.ended: list[str] = []

    def begin(self, name: str, key: bytes = ADA, connection: str = "here", now: float = 0.0):
        return self.streams.begin(key, connection, now, lambda: self.ended.append(name))


def test_a_stream_expires_once_a_lifetime_after_its_start() -> None:
    held = Held()
    held.begin("early")
    held.begin("late", now=5.0)
    held.streams.handle_deadlines(TICKET_LIFETIME_S - 0.001)
    assert held.ended == []
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    held.streams.handle_deadlines(TICKET_LIFETIME_S + 1.0)
    assert held.ended == ["early"]
    held.streams.handle_deadlines(TICKET_LIFETIME_S + 5.0)
    assert held.ended == ["early", "late"]


def test_a_proof_extends_the_streams_of_its_key_and_connection_alone() -> None:
    held = Held()
    held.begin("proved")
    held.begin("elsewhere", connection="there")
    held.begin("another's", key=BOB)
    held.streams.renew(ADA, "here", 10.0)
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    assert held.ended == ["elsewhere", "another's"]
    held.streams.handle_deadlines(TICKET_LIFETIME_S + 10.0)
    assert held.ended[2:] == ["proved"]


def test_no_proof_extends_an_expired_stream() -> None:
    held = Held()
    held.begin("late to prove")
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    held.streams.renew(ADA, "here", TICKET_LIFETIME_S)
    held.streams.handle_deadlines(3 * TICKET_LIFETIME_S)
    assert held.ended == ["late to prove"]


def test_the_streams_of_a_key_are_limited() -> None:
    held = Held(per_key_max=2)
    first = held.begin("one")
    held.begin("two")
    with pytest.raises(QuotaExceeded, match="2 links already"):
        held.begin("three")
    held.begin("another's", key=BOB)
    # An expired stream counts until its call has ended, since its peer may not read.
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    with pytest.raises(QuotaExceeded):
        held.begin("three")
    held.streams.end(first)
    held.begin("three")


def test_a_key_without_streams_is_not_remembered() -> None:
    held = Held()
    held.streams.end(held.begin("one"))
    assert held.streams._held == {}


def test_the_end_of_one_stream_leaves_the_others_of_its_key() -> None:
    held = Held()
    first, second = held.begin("first"), held.begin("second")
    held.streams.end(first)
    held.begin("third")
    with pytest.raises(QuotaExceeded):
        held.begin("fourth")
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    assert held.ended == ["second", "third"]
    held.streams.end(second)
