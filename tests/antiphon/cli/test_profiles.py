"""The profile that a command asks, and the sampling that its request states."""

from typing import Any

from tests.antiphon.cli.conftest import Terminal, World
from tests.support.scripted_host import ADVISED, PROFILE


def last_request(me: Terminal) -> dict[str, Any]:
    return [record for record in me.records("log") if record["kind"] == "request"][-1]


def test_a_request_states_what_the_host_recommends(me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "one")
    stated = last_request(me)["sampling"]
    assert (stated["temperature"], stated["top_k"]) == (ADVISED.temperature, ADVISED.top_k)
    assert stated["seed"]


def test_an_option_wins_over_the_recommendation(me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "one", "--temperature", "0.1")
    stated = last_request(me)["sampling"]
    assert (stated["temperature"], stated["top_k"]) == (0.1, ADVISED.top_k)


def test_an_option_of_new_is_a_default_over_the_recommendation(me: Terminal, world: World) -> None:
    me.ok("new", "--top-p", "0.5")
    world.stop_host()
    me.ok("send", "one", "--no-wait")
    stated = last_request(me)["sampling"]
    assert (stated["temperature"], stated["top_k"], stated["top_p"]) == (0.6, 20, 0.5)


def test_a_profile_is_named_by_its_name_or_digest(me: Terminal) -> None:
    me.ok("new")
    for name in (PROFILE.name, PROFILE.digest.hex()[:8]):
        me.ok("send", "one", "--profile", name)
    assert me.refused("send", "one", "--profile", "Another") == "ARGUMENT_INVALID"


def test_warm_asks_a_host_that_serves_calls(me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "one")
    assert me.refused("warm") == "NO_HOST"
