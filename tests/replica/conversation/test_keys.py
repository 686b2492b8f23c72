"""A call is found again by its author's key."""

import pytest

from replica.conversation.keys import (
    KeyedRun,
    call_digest,
    find_run,
    key_digest,
    repeats_call,
)
from replica.log.body import Text
from replica.refusals import KeyReused
from tests.support.turns import Turns, key_of


@pytest.fixture
def turns() -> Turns:
    return Turns()


def run_of(turns: Turns, text: str, words: str = "Book.") -> KeyedRun:
    author = turns.owner.public
    return find_run(turns.held, author, key_digest(author, text), call_digest((Text(words),)))


def test_nothing_is_found_before_the_first_entry(turns: Turns):
    turns.say(turns.owner, "Book.", turns.genesis)
    assert run_of(turns, "job-17") == KeyedRun()


def test_a_message_whose_request_was_cut_off_is_found(turns: Turns):
    key = key_of(turns.owner.public, "job-17", "Book.")
    said = turns.say(turns.owner, "Book.", turns.genesis, key=key)
    assert run_of(turns, "job-17") == KeyedRun(said.id)
    assert run_of(turns, "job-18") == KeyedRun()


def test_the_requests_of_a_call_are_found_in_order_with_the_attempt(turns: Turns):
    first, second = (key_of(turns.owner.public, "job-17", "Book.", n) for n in (0, 1))
    said = turns.say(turns.owner, "Book.", turns.genesis, key=first)
    asked = [turns.ask(turns.owner, said, key=first), turns.ask(turns.owner, said, key=second)]
    assert run_of(turns, "job-17") == KeyedRun(said.id, (asked[0].id, asked[1].id), 1)


def test_other_content_under_the_same_key_is_refused(turns: Turns):
    key = key_of(turns.owner.public, "job-17", "Book.")
    turns.say(turns.owner, "Book.", turns.genesis, key=key)
    with pytest.raises(KeyReused):
        run_of(turns, "job-17", "Cancel.")


def test_the_key_of_another_member_is_another_key(turns: Turns):
    theirs = key_of(turns.writer.public, "job-17", "Book.")
    turns.say(turns.writer, "Book.", turns.genesis, key=theirs)
    assert run_of(turns, "job-17") == KeyedRun()
    # Nor does a member speak for another: the author of the entry counts.
    forged = key_of(turns.owner.public, "job-17", "Book.")
    turns.say(turns.writer, "Book.", turns.genesis, key=forged)
    assert run_of(turns, "job-17") == KeyedRun()


def test_of_two_devices_that_begin_at_once_the_first_message_counts(turns: Turns):
    key = key_of(turns.owner.public, "job-17", "Book.")
    said = [turns.say(turns.owner, "Book.", turns.genesis, key=key) for _ in range(2)]
    late = turns.ask(turns.owner, said[1], key=key)
    assert run_of(turns, "job-17") == KeyedRun(said[0].id)
    early = turns.ask(turns.owner, said[0], key=key)
    assert run_of(turns, "job-17") == KeyedRun(said[0].id, (early.id,))
    assert late.id != early.id


def test_the_second_request_of_a_call_repeats_it_and_the_next_try_does_not(turns: Turns):
    first, second = (key_of(turns.owner.public, "job-17", "Book.", n) for n in (0, 1))
    said = [turns.say(turns.owner, "Book.", turns.genesis, key=first) for _ in range(2)]
    asked = turns.ask(turns.owner, said[0], key=first)
    same_place = turns.ask(turns.owner, said[0], key=first)
    other_message = turns.ask(turns.owner, said[1], key=first)
    again = turns.ask(turns.owner, said[0], key=second)
    bare = turns.ask(turns.owner, said[0])
    repeating = {e.id: repeats_call(turns.held, e.id) for e in (asked, same_place, other_message)}
    assert repeating == {asked.id: False, same_place.id: True, other_message.id: True}
    assert not repeats_call(turns.held, again.id)
    assert not repeats_call(turns.held, bare.id)
