"""Stats of a real host: whose requests it shows, and to whom."""

import pytest

from model_host.io.config import HostConfig
from model_host.io.server import start as start_host
from replica.io.calls.host_calls import HostCalls
from replica.io.files.keys import load_or_create
from replica.log.body import Grant, Member, Role
from replica.log.entry import public_key
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk, key_of

OPERATOR, READER, STRANGER = key_of(7), key_of(8), key_of(9)


async def test_a_running_request_is_shown_to_members_and_operators_alone(served_real: ServedHost):
    config = HostConfig(
        data_dir=served_real.folder / "host",
        hub=served_real.hub.address,
        operator_keys=[public_key(OPERATOR).hex()],
    )
    async with start_host(config, served_real.engine) as host:
        talk = await Talk.begin(served_real.replica, host.key)
        heads = tuple(talk.held.log.membership_heads())
        grant = Member(Grant(public_key(READER), Role.READER))
        await talk.replica.append(talk.id, grant, parents=heads)
        await talk.say("Write a very long story about the sea.")
        request = await talk.request(tokens=100)
        await talk.replica.wait_for(lambda: len(talk.shown(request)) > 5, 30)
        own = load_or_create(served_real.folder / "host" / "identity.key")
        seen = {}
        for name, key in (
            ("owner", served_real.replica.key),
            ("reader", READER),
            ("operator", OPERATOR),
            ("host", own),
            ("stranger", STRANGER),
        ):
            async with HostCalls(host.address, key, host.key) as calls:
                seen[name] = await calls.stats()
        assert talk.held.order.answer(request) is None, "it still runs"
        for name in ("owner", "reader", "operator", "host"):
            (shown,) = seen[name].requests
            assert (shown.conversation, shown.request) == (talk.id, request)
            assert shown.author == shown.owner == served_real.replica.public
            assert shown.output_tokens > 0
            assert shown.found_tokens + shown.computed_tokens == shown.prompt_tokens
            assert 0 < shown.first_token_s <= shown.age_s
        assert seen["stranger"].requests == ()
        assert seen["stranger"].number("requests_running") == 1
        operators = {name for name, sample in seen.items() if sample.is_operator}
        assert operators == {"operator", "host"}
        told = {name for name, s in seen.items() if s.number("tier_bytes", "memory") is not None}
        assert told == operators
        await talk.cancel(request)
        await talk.answer(request)


async def test_the_numbers_are_those_of_the_log(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        answers = [(await talk.ask(text, tokens=5))[1] for text in ("Hello.", "And then?")]
        await served.kept(talk, host, 2)
        own = load_or_create(served.folder / "host" / "identity.key")
        async with HostCalls(host.address, own, host.key) as calls:
            sample = await calls.stats()
    usages = [answer.usage for answer in answers]
    tokens = {name: sample.number("tokens_total", name) for name in ("cached", "prefilled")}
    assert tokens == {
        "cached": sum(usage.cached_tokens for usage in usages),
        "prefilled": sum(usage.prefilled_tokens for usage in usages),
    }
    assert sample.number("tokens_total", "output") == sum(u.output_tokens for u in usages)
    assert sum(sample.metrics["antiphon_host_requests_finished_total"].values()) == 2
    assert sample.number("checkpoints_written_total") == 2
    assert (sample.number("requests_running"), sample.requests) == (0, ())
    first = sample.distribution("first_token_seconds")
    assert first is not None
    assert first.total == 2
    assert first.sum * 1e6 == pytest.approx(sum(usage.first_token_us for usage in usages))
    held = sample.number("tier_tokens", "memory")
    assert held is not None
    assert held >= sum(usage.prefilled_tokens + usage.output_tokens for usage in usages) - 1
