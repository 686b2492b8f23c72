"""The streams of a key: their number and their lifetime (LINK-28)."""

from contextlib import ExitStack

import pytest

from replica.errors import AntiphonError, Unavailable
from replica.limits import TICKET_LIFETIME_S
from replica.refusals import RateLimited
from syncd.bounds.streams import Streams
from tests.support.writers import Writer

ADA, BOB, EVE = Writer(1).public, Writer(2).public, Writer(3).public


def _ignore(_error: AntiphonError) -> None:
    """Let a call run on."""


class Held:
    """Streams by name, and the names of the expired ones."""

    def __init__(self, per_key_max: int = 2) -> None:
        self.streams = Streams(per_key_max)
        self.ended: list[str] = []
        self.reasons: set[str] = set()

    def begin(self, name: str, key: bytes = ADA, connection: str = "here", now: float = 0.0):
        def finish(error: AntiphonError) -> None:
            self.ended.append(name)
            self.reasons.add(error.reason)

        return self.streams.begin(key, connection, now, finish)


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
    assert held.reasons == {"TICKET_INVALID"}


def test_all_streams_are_finished_with_one_reason() -> None:
    held = Held()
    held.begin("one")
    held.begin("another's", key=BOB)
    held.streams.finish_all(Unavailable("the hub stops"))
    assert held.ended == ["one", "another's"]
    assert held.reasons == {"UNAVAILABLE"}


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
    with pytest.raises(RateLimited, match="2 links or calls already"):
        held.begin("three")
    held.begin("another's", key=BOB)
    # An expired stream counts until its call has ended, since its peer may not read.
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    with pytest.raises(RateLimited):
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
    with pytest.raises(RateLimited):
        held.begin("fourth")
    held.streams.handle_deadlines(TICKET_LIFETIME_S)
    assert held.ended == ["second", "third"]
    held.streams.end(second)


def test_the_streams_of_all_keys_are_limited() -> None:
    streams = Streams(2, total_max=2)
    first = streams.begin(ADA, "here", 0.0, _ignore)
    streams.begin(BOB, "here", 0.0, _ignore)
    with pytest.raises(RateLimited):
        streams.begin(Writer(3).public, "here", 0.0, _ignore)
    streams.end(first)
    streams.begin(Writer(3).public, "here", 0.0, _ignore)


def test_a_call_counts_until_it_ends() -> None:
    streams = Streams(1)
    with streams.count(ADA), pytest.raises(RateLimited), streams.count(ADA):
        raise AssertionError("it is refused")
    with streams.count(ADA):
        pass


def test_where_all_are_in_use_the_key_with_most_loses_its_oldest() -> None:
    streams, ended = Streams(8, total_max=8), list[str]()

    def begin(name: str, key: bytes):  # type: ignore[no-untyped-def]
        return streams.begin(
            key,
            "here",
            0.0,
            _ignore,
            lambda error: ended.append(f"{name} {error.reason}"),
        )

    begin("bob", BOB)
    eves = [begin(f"eve {n}", EVE) for n in range(7)]
    begin("ada", ADA)
    assert ended == ["eve 0 RATE_LIMITED"]
    # The peer of the first one does not read, so that its call does not end.
    with pytest.raises(RateLimited):
        begin("ada 2", ADA)
    streams.end(eves[0])
    begin("ada 2", ADA)
    assert ended[1:] == ["eve 1 RATE_LIMITED"]


def test_nobody_loses_a_stream_to_a_key_with_as_many() -> None:
    streams = Streams(8, total_max=4)
    for key in (ADA, ADA, EVE, EVE):
        streams.begin(key, "here", 0.0, _ignore, _ignore)
    for key in (ADA, EVE):
        with pytest.raises(RateLimited, match="4 links or calls already"):
            streams.begin(key, "here", 0.0, _ignore, _ignore)
    streams.begin(BOB, "here", 0.0, _ignore, _ignore)


def test_a_transfer_of_the_key_with_most_ends_where_another_needs_its_place() -> None:
    streams = Streams(16, total_max=2)
    with ExitStack() as running:
        checks = [running.enter_context(streams.count(ADA)) for _ in range(2)]
        with streams.count(BOB) as check:
            check()
            with pytest.raises(RateLimited, match="others need room"):
                checks[0]()
            checks[1]()
            with pytest.raises(RateLimited), streams.count(EVE):
                pass  # each has one now
        assert (streams._total, streams._released) == (2, 1)
    assert (streams._total, streams._released) == (0, 0)
