"""The kit finds bugs that were put into clients, hosts and folds on purpose."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from antiphon.conformance.cases import Check, Violation
from antiphon.conformance.io import member
from antiphon.conformance.io.adapter import Adapter
from antiphon.conformance.io.client import CASES as CLIENT_CASES
from antiphon.conformance.io.client import Clients, session
from antiphon.conformance.io.divergence import CASES as DIVERGENCES
from antiphon.conformance.io.divergence import Player
from antiphon.conformance.io.host import CASES as HOST_CASES
from antiphon.conformance.io.host import UnderTest, access, pages, talk
from antiphon.conformance.io.running import outcome_of
from replica.link import Entries, credit
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.conformance.planted_answers import ANSWERS
from tests.conformance.planted_contexts import CONTEXTS
from tests.conformance.planted_hosts import HOSTS as MORE_HOSTS
from tests.conformance.planted_hosts import answers_by_the_default
from tests.conformance.planted_peers import CLIENTS, FOLDS, HOSTS, Planted
from tests.conformance.planted_requests import REQUESTS
from tests.model_host.io.tiny_hosts import tiny_hosts
from tests.model_host.io.two_profiles import two_profiles

PATIENCE_S = 0.5
"""Longest wait for something that a bug prevents, so that a test takes half a second."""
LONG_TOKENS = 400
"""Tokens of a long answer: a bug that lets one go on computes all of them."""


def case(cases: Iterable[Check], name: str) -> Check:
    (found,) = (one for one in cases if one.name == name)
    return found


def name_of(planted: Planted) -> str:
    return planted.bug.__name__


@contextmanager
def impatient(hangs: bool) -> Iterator[None]:
    """Wait for audits no longer than they take, and for a host that hangs no longer than needed.

    A long answer has as many tokens as it takes to cancel it.
    """
    bounds = [(talk, "ANSWER_S"), (access, "PATIENCE_S")] if hangs else []
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(talk, "LONG_TOKENS_MAX", LONG_TOKENS))
        patches.enter_context(mock.patch.object(pages, "AUDIT_S", 0.2))
        for module, name in bounds:
            patches.enter_context(mock.patch.object(module, name, PATIENCE_S))
        yield


@pytest.mark.parametrize("planted", CLIENTS, ids=name_of)
async def test_a_bug_of_a_client_is_found(planted: Planted) -> None:
    adapter = Adapter()
    with planted.bug(), mock.patch.object(session, "PATIENCE_S", PATIENCE_S):
        outcome = await outcome_of(case(CLIENT_CASES, planted.case), Clients(adapter))
    await adapter.close()
    assert outcome.problems, f"{planted.case} misses it"


async def test_credit_for_an_earlier_frame_is_no_answer_to_a_pong() -> None:
    adapter = Adapter()
    with (
        mock.patch.object(credit, "grant_bytes", return_value=1),
        mock.patch.object(session, "PATIENCE_S", 5.0),
    ):
        async with Clients(adapter).session("grants credit with each frame") as s:
            await s.joined()
            await s.barrier()
            frames = s.hub.links[-1].sent
            await s.barrier()
            assert s.hub.links[-1].sent == frames, "each barrier would double what the next sends"
            s.hub.send(Entries(s.entries.conversation, tuple(s.all())))
            with (
                mock.patch.object(s.hub, "send"),  # the Pongs are lost
                mock.patch.object(session, "PATIENCE_S", PATIENCE_S),
                pytest.raises(Violation, match="Credit after a Pong"),
            ):
                await s.barrier()
    await adapter.close()


async def test_every_bug_of_a_host_is_found(tmp_path: Path) -> None:
    missed = []
    async with tiny_hosts(tmp_path) as hosts, hosts.host():
        run = UnderTest(hosts.hub.address)
        for planted in (*HOSTS, *MORE_HOSTS, *ANSWERS, *REQUESTS, *CONTEXTS):
            with planted.bug(), impatient(planted.hangs):
                outcome = await outcome_of(case(HOST_CASES, planted.case), run)
            if not outcome.problems:
                missed.append((planted.bug.__name__, outcome.not_run))
    assert missed == []


async def test_a_host_that_ignores_the_profile_of_a_request_is_found(tmp_path: Path) -> None:
    async with two_profiles(tmp_path) as two:
        run, profiles = UnderTest(two.hub), case(HOST_CASES, "answers/profiles")
        assert not (await outcome_of(profiles, run)).problems
        with answers_by_the_default():
            assert (await outcome_of(profiles, run)).problems


@pytest.mark.parametrize("planted", FOLDS, ids=name_of)
async def test_a_bug_of_the_folds_is_found(planted: Planted, tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path, listen="127.0.0.1:0"))
    player = Player(hub.address)
    with planted.bug(), mock.patch.object(member, "PATIENCE_S", PATIENCE_S):
        outcome = await outcome_of(case(DIVERGENCES, planted.case), player)
    await hub.stop()
    assert outcome.problems, f"{planted.case} misses it"
