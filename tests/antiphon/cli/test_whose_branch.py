"""`send` where others began branches behind one's last turn (DECISIONS D365)."""

import re

from antiphon.cli.commands.whose_branch import begun_behind
from replica.conversation import place_on_branch, with_conflict
from replica.log.entry import Conflict
from tests.antiphon.cli.conftest import World
from tests.antiphon.cli.test_two_members import pair, said_in
from tests.support.turns import Turns


def test_send_stays_on_its_branch_and_says_where_others_went(world: World) -> None:
    ada, bob = pair(world)
    first = ada.record("send", "first")
    bob.ok("send", "second")
    bob.ok("send", "aside", "--at", first["generation"])
    sent = ada.run("send", "third")
    said = " ".join(sent.stderr.split())
    assert re.search(r"note: another branch, by \w+: aside · antiphon switch \w+ goes there", said)
    words = ["first", "You said: first", "second", "You said: second", "third", "You said: third"]
    assert said_in(ada.ok("log")) == words
    assert "another branch" not in ada.run("send", "fourth").stderr, "it is said once"
    # Bob's own last turn is aside.
    assert "another branch" not in bob.run("send", "there").stderr
    assert said_in(bob.ok("log"))[-3:-1] == ["You said: aside", "there"]


def test_a_branch_that_somebody_begins_before_the_answer_comes_is_said_too() -> None:
    turns = Turns()
    asked = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    beside = turns.ask(turns.writer, turns.say(turns.writer, "Aside.", turns.genesis), conflict=1)
    turns.seal(asked)
    turns.seal(beside)
    assert begun_behind(turns.held, asked.id, turns.owner.public) == []
    there = with_conflict(turns.held, place_on_branch(turns.held, asked.id), Conflict.FORK)
    said = turns.say(turns.writer, "Aside.", *map(turns.entry, there.parents))
    fork = turns.seal(turns.ask(turns.writer, said, conflict=there.conflict))
    found = begun_behind(turns.held, asked.id, turns.owner.public)
    assert [node.id for node in found] == [fork.id]


def test_send_says_that_it_goes_on_somebody_elses_branch(world: World) -> None:
    ada, bob = pair(world)
    first = ada.record("send", "first")
    bob.ok("send", "aside", "--at", first["generation"])
    said = " ".join(ada.run("send", "and I").stderr.split())
    assert re.search(r"note: this goes on a branch by \w+: aside · antiphon branches", said)
    assert said_in(ada.ok("log"))[1:5] == ["You said: first", "aside", "You said: aside", "and I"]
