"""`send` where others began branches behind one's last turn (DECISIONS D365)."""

import re

from tests.antiphon.cli.conftest import World
from tests.antiphon.cli.test_two_members import pair, said_in


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


def test_send_says_that_it_goes_on_somebody_elses_branch(world: World) -> None:
    ada, bob = pair(world)
    first = ada.record("send", "first")
    bob.ok("send", "aside", "--at", first["generation"])
    said = " ".join(ada.run("send", "and I").stderr.split())
    assert re.search(r"note: this goes on a branch by \w+: aside · antiphon branches", said)
    assert said_in(ada.ok("log"))[1:5] == ["You said: first", "aside", "You said: aside", "and I"]
