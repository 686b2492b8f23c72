"""Our host passes the kit, on a tiny model with the real engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.conformance.io.host import CASES, UnderTest
from antiphon.conformance.io.host.talk import Talk
from antiphon.conformance.io.running import outcome_of, outcomes_of
from replica.log.body import Request
from tests.model_host.io.tiny_hosts import tiny_hosts

SHORT = 256
"""Tokens of the shorter context."""


class Measured(UnderTest):
    """A host under test, and the conversations with it."""

    def __init__(self, address: str, talks: list[Talk] | None = None) -> None:
        super().__init__(address)
        self.address = address
        self.talks: list[Talk] = [] if talks is None else talks

    def another(self) -> "Measured":
        return Measured(self.address, self.talks)

    @asynccontextmanager
    async def talk(self, *given: object, **options: object) -> AsyncIterator[Talk]:
        async with super().talk(*given, **options) as talk:  # type: ignore[arg-type]  # as given
            self.talks.append(talk)
            yield talk


def longest(talk: Talk) -> int:
    """Return the tokens of the longest context that was asked for; a refused one has no length."""
    order, found = talk.held.order, [0]
    for request in order.requests:
        body, answer = talk.held.log.body(request), order.answer(request)
        assert isinstance(body, Request)
        if answer is None or answer.finish_detail.startswith("CONTEXT_TOO_LONG"):
            found.append(talk.profile.context_tokens_max + 1)
        else:
            wanted = body.output_tokens_max or talk.profile.context_tokens_max
            found.append(answer.usage.prompt_tokens + wanted)
    return max(found)


async def test_our_host_passes_every_case_and_with_a_short_context_says_which_it_skips(
    tmp_path: Path,
) -> None:
    """Contexts that fit the short one are the same there: the other cases are run again."""
    long, problems, not_run = [], [], []
    async with tiny_hosts(tmp_path) as hosts, hosts.host():
        for case in CASES:
            run = Measured(hosts.hub.address)
            outcome = await outcome_of(case, run)
            problems += [(case.name, outcome.problems)] if outcome.problems else []
            not_run += [(case.name, outcome.not_run)] if outcome.not_run else []
            if max(map(longest, run.talks), default=0) > SHORT:
                long.append(case)
    assert problems == []
    assert not_run == []
    assert len(CASES) >= 60
    folder = tmp_path / "short"
    folder.mkdir()
    async with tiny_hosts(folder) as hosts, hosts.host(context_tokens=SHORT):
        run = Measured(hosts.hub.address)
        outcomes = [outcome async for outcome in outcomes_of(long, run)]
    assert [(o.case.name, o.problems) for o in outcomes if o.problems] == []
    reasons = [o.not_run for o in outcomes if o.not_run]
    assert 0 < len(reasons) < 16
    assert len(reasons) < len(outcomes) < len(CASES) // 2
    assert all("needs a context of" in reason for reason in reasons), reasons
