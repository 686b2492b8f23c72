"""The times of heartbeats and the end of an idle link (spec/04-link §4, LINK-7)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.link import greeting
from replica.link.heartbeat import Heartbeat
from replica.link.messages import Ping
from tests.support.writers import Writer

WELCOME = greeting.welcome(Writer(1).public)


def test_a_heartbeat_is_due_once_after_its_pause() -> None:
    heartbeat = Heartbeat(100.0)
    assert heartbeat.due_at == 100.0 + limits.HEARTBEAT_S
    assert not heartbeat.begin(heartbeat.due_at - 0.001)
    due = heartbeat.due_at
    assert heartbeat.begin(due)
    assert not heartbeat.begin(due)
    assert heartbeat.due_at == due + limits.HEARTBEAT_S


def test_a_link_is_idle_unless_a_message_is_received() -> None:
    heartbeat = Heartbeat(100.0)
    assert heartbeat.idle_at == 100.0 + limits.IDLE_TIMEOUT_S
    heartbeat.note_received(150.0)
    assert heartbeat.idle_at == 150.0 + limits.IDLE_TIMEOUT_S
    assert heartbeat.begin(120.0)
    assert (
        heartbeat.idle_at == 150.0 + limits.IDLE_TIMEOUT_S
    )  # our own heartbeat is no message of the peer


@pytest.mark.parametrize(
    ("idle_timeout_ms", "pause_s"),
    [(60_000, 20.0), (600_000, 20.0), (15_000, 5.0), (3_000, 1.0), (10, 1.0)],
)
def test_a_client_sends_three_heartbeats_per_idle_timeout(
    idle_timeout_ms: int, pause_s: float
) -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.adopt(replace(WELCOME, idle_timeout_ms=idle_timeout_ms))
    assert heartbeat.due_at == pause_s


def test_heartbeats_are_numbered_and_name_the_bytes_sent() -> None:
    heartbeat = Heartbeat(0.0)
    assert [heartbeat.ping(n) for n in (0, 70, 70)] == [Ping(1, 0), Ping(2, 70), Ping(3, 70)]
