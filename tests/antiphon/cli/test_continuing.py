"""Where an answer that was cut off says how it goes on."""

from dataclasses import replace

import pytest

from antiphon.cli.common.errors import TurnBetween
from antiphon.cli.common.turn import continuable, continued_place
from replica.conversation import newest_place, place_at
from replica.log import Conflict, FinishReason, Kind
from replica.log import Text as TextPart
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_D
from tests.antiphon.cli.test_chat_terminal import chat, members, slow
from tests.antiphon.cli.test_terminal import HeldUp, at
from tests.antiphon.cli.test_two_members import owed
from tests.support.turns import Turns

__all__ = ["members", "slow"]


def test_an_answer_is_continuable_while_it_is_the_last_turn_and_nothing_waits_behind_it() -> None:
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    cut = turns.answer(first, TextPart("An ans"), reason=FinishReason.LENGTH)
    seal = turns.entry(cut.header.parents[0])
    assert continuable(turns.held, newest_place(turns.held)) == cut.id
    theirs = turns.ask(turns.writer, cut, basis=seal)  # it asks again, without words
    assert continuable(turns.held, newest_place(turns.held)) is None
    turns.answer(theirs, TextPart("wer."))
    assert continuable(turns.held, newest_place(turns.held)) is None


def test_a_question_queued_behind_a_cut_answer_makes_it_not_continuable() -> None:
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    turns.ask(turns.writer, turns.say(turns.writer, "And I?", first))
    turns.answer(first, TextPart("An ans"), reason=FinishReason.LENGTH)
    assert continuable(turns.held, newest_place(turns.held)) is None


def test_an_answer_that_another_turn_follows_is_continued_beside_that_turn_alone() -> None:
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    theirs = turns.ask(turns.writer, turns.say(turns.writer, "And I?", first))
    cut = turns.answer(first, TextPart("An ans"), reason=FinishReason.LENGTH)
    chosen = place_at(turns.held, cut.id)
    with pytest.raises(TurnBetween):
        continued_place(turns.held, replace(chosen, conflict=Conflict.QUEUE))
    assert continued_place(turns.held, chosen) == chosen
    assert chosen.conflict is Conflict.FORK
    turns.answer(theirs, TextPart("You too."))
    assert continued_place(turns.held, chosen) == chosen


def test_send_does_not_offer_to_go_on_where_the_turn_of_another_member_waits(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """As typed, it ended with NOTHING_TO_CONTINUE, or went on with that member's answer."""
    ada, bob = members
    with at(world, ada, "send", "one two three", "--max-tokens", "3") as terminal:
        terminal.expect_screen("2 tokens")
        bob.ok("send", "mine", "--no-wait")
        slow.evict()
        assert terminal.exit_code() == 0
        assert "cut off at its limit of 3 tokens\n" in terminal.screen.text
    alone = ada.run("send", "again", "--max-tokens", "2")
    assert "cut off at its limit of 2 tokens · antiphon send --continue goes on" in alone.stderr


def test_a_chat_does_not_offer_to_go_on_where_the_turn_of_another_member_waits(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with chat(world, ada, "--max-tokens", "3") as terminal:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
        bob.ok("send", "mine", "--no-wait")
        terminal.expect_screen("next  bob: mine")
        slow.evict()
        terminal.expect_screen("cut off at its limit of 3 tokens\n3 tokens")
        terminal.expect_screen("bob: mine\nYou said: mine")
        assert "/continue" not in terminal.screen.text
        terminal.type("four five\r")
        terminal.expect_screen("You said: four\ncut off at its limit of 3 tokens · /continue goes")
        terminal.type("/continue\r")
        terminal.expect_screen("> four five\nYou said: four\n")
        terminal.expect_screen("You said: You")
        assert terminal.leave(CTRL_D) == 0


def test_a_chat_that_is_opened_offers_to_go_on_with_the_last_answer_alone(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    for words in ("one", "two"):
        me.ok("send", words, "--max-tokens", "2")
    with chat(world, me) as terminal:
        terminal.expect_screen("> two\nYou said:\ncut off at its limit of 2 tokens · /continue")
        assert "> one\nYou said:\ncut off at its limit of 2 tokens\n" in terminal.screen.text
        assert terminal.leave(CTRL_D) == 0
    piped = me.run("chat", "--max-tokens", "1", typed="three\n")
    assert "cut off at its limit of 1 token · /continue goes on" in piped.stderr


def test_of_two_members_who_continue_an_answer_at_once_one_is_refused(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    """It began a turn of its own, behind the rest, without a question."""
    ada, bob = members
    ada.ok("send", "one two three four", "--max-tokens", "2")
    bob.ok("log")
    world.stop_host()
    world.stop_hub()
    for member in members:
        member.ok("send", "--continue", "--no-wait", "--max-tokens", "3")
    world.start_hub()
    for member in (ada, bob, ada):
        member.ok("status")
    replica = world.start_host().replica

    def is_answered() -> bool:
        logs = [held.log.entries.values() for held in replica.shelf.values()]
        answers = [e for log in logs for e in log if e.header.kind == Kind.GENERATION]
        return len(answers) == 3 and not owed(replica)

    assert world.background.run(replica.wait_for(is_answered, 10.0))
    shown = [member.ok("log") for member in members]
    assert sum("refused: NOTHING_TO_CONTINUE" in one for one in shown) == 1
    assert all("You said: You" in one for one in shown), "the rest is there once"
    refused = next(one for one in members if "refused: NOTHING" in one.ok("log"))
    refused.ok("send", "--continue", "--max-tokens", "1")  # goes on with the rest that came first
    assert refused.ok("log").count("refused: NOTHING") == 0
    for member in members:
        assert member.ok("send", "ok") == "You said: ok\n"
