"""Our host passes the kit, on a tiny model with the real engine."""

from pathlib import Path

from antiphon.conformance.io.host import CASES, UnderTest
from antiphon.conformance.io.running import outcomes_of
from tests.model_host.io.tiny_hosts import tiny_hosts


async def test_our_host_passes_every_case(tmp_path: Path) -> None:
    async with tiny_hosts(tmp_path) as hosts, hosts.host():
        run = UnderTest(hosts.hub.address)
        outcomes = [outcome async for outcome in outcomes_of(CASES, run)]
    assert [(o.case.name, o.problems) for o in outcomes if o.problems] == []
    assert [(o.case.name, o.not_run) for o in outcomes if o.not_run] == []
    assert len(outcomes) >= 60


async def test_cases_that_need_a_longer_context_are_skipped_and_say_so(tmp_path: Path) -> None:
    async with tiny_hosts(tmp_path) as hosts, hosts.host(context_tokens=256):
        run = UnderTest(hosts.hub.address)
        outcomes = [outcome async for outcome in outcomes_of(CASES, run)]
    assert [(o.case.name, o.problems) for o in outcomes if o.problems] == []
    reasons = [o.not_run for o in outcomes if o.not_run]
    assert 0 < len(reasons) < 15
    assert all("needs a context of" in reason for reason in reasons), reasons
