"""Errors of the library carry what a program needs to go on."""

from antiphon.library.errors import (
    CallOpen,
    EventsMissed,
    LoopUnsuitable,
    ReplicaClosed,
    RunTooLong,
    RunUnfinished,
    ToolUnsuitable,
)
from replica.refusals import NoHost


def test_an_open_call_names_itself_and_its_effect():
    error = CallOpen("'book' was started", call_id="1", effect_key="ab")
    assert (error.reason, error.call_id, error.effect_key) == ("CALL_OPEN", "1", "ab")
    assert "abandon" in error.next_step


def test_each_reason_is_a_word_of_its_own():
    kinds = (
        CallOpen,
        EventsMissed,
        LoopUnsuitable,
        ReplicaClosed,
        RunTooLong,
        RunUnfinished,
        ToolUnsuitable,
    )
    assert len({kind.reason for kind in kinds}) == len(kinds)


def test_a_program_without_a_host_reads_how_to_name_one():
    assert "antiphon.open(…, host=KEY)" in NoHost.next_step


def test_who_comes_before_the_host_is_ready_reads_to_wait():
    assert NoHost.next_step.startswith("Run `antiphon up`, or wait until it is ready.")
