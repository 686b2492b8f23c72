"""Events reach the event loop at once where a reader waits for them, else together."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from model_host.batching import Chosen, Computed, Ended, Event, Events, Job
from model_host.io.threads.event_queue import GATHER_S, WAIT_S, EventQueue
from model_host.sampling import Choice

STEP_S = GATHER_S / 4
JOB = cast(Job, SimpleNamespace())


class Loop:
    """An event loop whose clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list = []
        self.timers: list = []

    def call_soon_threadsafe(self, call) -> None:
        self.soon.append(call)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call) -> SimpleNamespace:
        timer = (when, call)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self.timers and self.timers.remove(timer))

    def call_later(self, delay: float, call) -> SimpleNamespace:
        return self.call_at(self.now + delay, call)

    def turn(self) -> int:
        """Make the calls that are due; return how many there were."""
        due, self.soon = self.soon, []
        due += [call for at, call in self.timers if at <= self.now]
        self.timers = [(at, call) for at, call in self.timers if at > self.now]
        for call in due:
            call()
        return len(due)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.delivered: list[list[Event]] = []
        self.loop = Loop()
        self.queue = EventQueue(self._deliver)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.loop)
        self.queue.open()

    def _deliver(self, events: Events) -> None:
        self.delivered.append([event for _, event in events])

    def post(self, *events: Event) -> None:
        self.queue.post([(JOB, event) for event in events])

    def after(self, seconds: float) -> list[list[Event]]:
        """Return what is delivered within a time."""
        self.loop.now += seconds
        self.delivered.clear()
        self.loop.turn()
        return list(self.delivered)


def token(number: int) -> Chosen:
    return Chosen(Choice(number), b"", is_first=number == 0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_first_token_comes_at_once_and_the_next_ones_together(scene: Scene):
    scene.post(token(0))
    assert scene.after(0) == [[token(0)]]
    for number in (1, 2, 3, 4):
        assert scene.after(STEP_S) == []
        scene.post(token(number))
    assert scene.after(GATHER_S - 3 * STEP_S) == []
    scene.post(token(5))
    assert scene.after(0) == [[token(number) for number in (1, 2, 3, 4, 5)]]
    scene.post(token(6))
    assert scene.after(0) == []


def test_a_token_that_no_other_follows_waits_for_a_bounded_time(scene: Scene):
    scene.post(token(0))
    scene.after(0)
    scene.after(WAIT_S - STEP_S)
    scene.post(token(1))
    assert scene.after(STEP_S) == []
    scene.post(token(2))
    assert scene.after(WAIT_S - STEP_S - 1e-9) == []
    assert scene.after(1e-9) == [[token(1), token(2)]]
    assert scene.after(WAIT_S) == []
    assert not scene.loop.timers


@pytest.mark.parametrize("urgent", [token(0), Ended()])
def test_an_urgent_event_comes_at_once_with_all_before_it(scene: Scene, urgent: Event):
    scene.post(Computed(3))
    scene.after(0)
    scene.post(token(1))
    scene.post(token(2), urgent)
    assert scene.after(0) == [[token(1), token(2), urgent]]
    scene.post(token(3))
    assert scene.after(0) == []
    assert scene.after(WAIT_S) == [[token(3)]]


def test_an_event_behind_a_pause_comes_at_once(scene: Scene):
    scene.post(token(0))
    scene.after(0)
    assert scene.after(WAIT_S) == []
    assert not scene.loop.timers
    scene.post(token(1))
    assert scene.after(0) == [[token(1)]]


def test_a_loop_that_is_woken_is_not_woken_twice(scene: Scene):
    scene.post(token(0))
    scene.post(Ended())
    assert scene.loop.turn() == 1
    assert scene.delivered == [[token(0), Ended()]]
    scene.post(token(1))
    scene.post(Ended())
    assert scene.loop.turn() == 1
    assert len(scene.loop.timers) == 1
    scene.post()
    assert scene.loop.turn() == 0


def test_the_end_delivers_what_waits_and_leaves_no_timer(scene: Scene):
    scene.post(token(0))
    scene.after(0)
    scene.post(token(1))
    scene.delivered.clear()
    scene.queue.close()
    assert scene.delivered == [[token(1)]]
    assert not scene.loop.timers


def test_a_wake_that_comes_behind_the_end_leaves_no_timer(scene: Scene):
    scene.post(token(0))
    scene.queue.close()
    assert scene.loop.turn() == 1
    assert scene.delivered == [[token(0)]]
    assert not scene.loop.timers
