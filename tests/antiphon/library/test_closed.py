"""The blocking form behind the end of its `with`."""

import gc
from pathlib import Path

import pytest

import antiphon
from antiphon.library.errors import ReplicaClosed


def test_a_call_behind_the_end_says_that_the_replica_is_closed(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        notes = me.conversation("notes")
    with pytest.raises(ReplicaClosed):
        notes.say("Too late.")


def test_an_iteration_that_was_left_ends_with_its_replica(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        events = me.events()
        me.conversation("notes").say("Heard.")
        said = next(event.text for event in events if isinstance(event, antiphon.Said))
    assert said == "Heard."
    events.close()  # type: ignore[attr-defined]  # it is a generator
    assert next(events, None) is None


def test_an_iteration_that_is_collected_in_the_loops_thread_ends(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        events = me.events()
        me.conversation("notes").say("Heard.")
        next(iter(events))
        cycle: list[object] = [events]
        cycle.append(cycle)
        gc.disable()
        try:
            del events, cycle

            async def collect() -> int:
                return gc.collect()

            assert me._portal.call(collect)
        finally:
            gc.enable()
        assert me.conversation("notes").say("Still open.")


def test_an_iterator_that_was_never_begun_is_released(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        notes = me.conversation("notes")
        before = _listeners(me)
        events = [notes.events(), me.events()]
        assert _listeners(me) == before + 2
        notes.say("Heard.")
        assert next(one for one in events[0] if isinstance(one, antiphon.Said)).text == "Heard."
        del events[1]  # the other one has begun, and goes on
        assert _listeners(me) == before + 1


def _listeners(me: antiphon.Replica) -> int:
    return len(me._core._core._listeners)
