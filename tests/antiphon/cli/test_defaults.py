"""Limits, stop texts and sampling: defaults in the log for all members, checked at once."""

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_two_members import clone_to


def test_limits_given_at_the_beginning_hold_for_every_member(world: World) -> None:
    ada, bob = world.replica("ada"), world.replica("bob")
    writer = bob.record("key", "show")["key"]
    ada.ok(
        "new", "--max-tokens", "2", "--stop", "END", "--temperature", "0.5",
        "--member", f"{writer}:writer",
    )  # fmt: skip
    clone_to(ada, bob)
    record = bob.record("send", "a long enough message")
    assert record["finish_reason"] == "length"
    assert len(record["token_ids"]) == 2
    (request,) = (r for r in bob.records("log") if r["kind"] == "request")
    assert (request["output_tokens_max"], request["stop"]) == (2, ["END"])
    assert request["sampling"]["temperature"] == 0.5
    begun = bob.records("log")[0]
    assert (begun["output_tokens_max"], begun["stop"]) == (2, ["END"])


def test_without_a_limit_a_request_states_512_tokens(me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "hello")
    me.ok("send", "more", "--max-tokens", "1000")
    limits = [r["output_tokens_max"] for r in me.records("log") if r["kind"] == "request"]
    assert limits == [512, 1000]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--max-tokens", "4294967296", "not between 0 and 4,294,967,295"),
        ("--temperature", "1000", "temperature is 1000.0, not between 0 and 100"),
        ("--temperature", "0.0001", "temperature is 0.0001, neither 0 nor 0.001 or more"),
        ("--repetition-penalty", "101", "not between 0 and 100"),
        ("--top-k", "4294967296", "top_k is 4294967296"),
        ("--seed", "18446744073709551616", "seed is"),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_is_written(
    me: Terminal, option: str, value: str, words: str
) -> None:
    result = me.run("new", option, value)
    assert result.exit_code == 1
    assert words in result.stderr
    assert me.records("list") == []
    if option != "--repetition-penalty":  # send has no such option
        me.ok("new")
        assert words in me.run("send", "hello", option, value).stderr
        assert "request" not in {r["kind"] for r in me.records("log")}
