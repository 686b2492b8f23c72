"""The shares of a step (spec/07-host §5)."""

import random

import pytest

from model_host.batching.step_plan import Demand, Share, StepPlanner
from model_host.engine_api import CHUNK_TOKENS

A, B, C = b"a", b"b", b"c"


def decoding(key: str, owner: bytes = A, rows: int = 1) -> Demand:
    return Demand(key, owner, rows, is_decoding=True)


def prompt(key: str, rows: int, owner: bytes = A) -> Demand:
    return Demand(key, owner, rows, is_decoding=False)


def plan(planner: StepPlanner, *demands: Demand, prompt_rows_max: int = 64) -> list[tuple]:
    shares = planner.plan(demands, prompt_rows_max=prompt_rows_max)
    return [(share.key, share.rows) for share in shares]


@pytest.mark.parametrize(
    ("demands", "shares"),
    [
        ([], []),
        ([decoding("d")], [("d", 1)]),
        ([prompt("p", 20)], [("p", 20)]),
        ([prompt("p", 4_000)], [("p", CHUNK_TOKENS)]),
        ([prompt("p", 4_000), decoding("d")], [("d", 1), ("p", 64)]),
        ([prompt("p", 20), decoding("d"), prompt("q", 100)], [("d", 1), ("p", 20), ("q", 44)]),
        ([prompt("p", 600), prompt("q", 600)], [("p", CHUNK_TOKENS)]),
        ([prompt("p", 500), prompt("q", 500, B)], [("p", 500), ("q", 12)]),
        ([decoding("d", rows=5), prompt("p", 9)], [("d", 5), ("p", 9)]),
    ],
)
def test_the_first_step(demands: list[Demand], shares: list[tuple[str, int]]):
    assert plan(StepPlanner(), *demands) == shares


def test_a_short_prompt_of_another_owner_is_in_the_next_step():
    planner = StepPlanner()
    assert plan(planner, prompt("long", 4_000)) == [("long", CHUNK_TOKENS)]
    shares = plan(planner, prompt("long", 3_488), prompt("short", 20, B))
    assert shares == [("short", 20), ("long", CHUNK_TOKENS - 20)]


def test_a_short_prompt_of_the_same_owner_is_in_the_next_step():
    planner = StepPlanner()
    plan(planner, prompt("long", 4_000))
    shares = plan(planner, prompt("long", 3_488), prompt("short", 20))
    assert shares == [("short", 20), ("long", CHUNK_TOKENS - 20)]


def test_many_requests_of_one_owner_do_not_delay_another_owners():
    planner = StepPlanner()
    many = [decoding(f"a{number}") for number in range(64)]
    plan(planner, *many)
    assert ("b", 1) in plan(planner, *many, decoding("b", B))
    prompts = [prompt(f"p{number}", 900) for number in range(32)]
    plan(planner, *prompts)
    assert plan(planner, *prompts, prompt("b", 30, B))[0] == ("b", 30)


def test_owners_with_many_sequences_share_a_step_equally():
    planner = StepPlanner(sequences_max=8)
    demands = [decoding(f"{owner!r}{n}", owner) for owner in (A, B) for n in range(20)]
    keys = [str(key) for key, _ in plan(planner, *demands)]
    assert sum(key.startswith(repr(A)) for key in keys) == 4


def test_every_sequence_is_served_in_turn():
    planner, waits = StepPlanner(sequences_max=4), dict.fromkeys(range(11), 0)
    owners = [A] * 8 + [B, C, C]
    for _ in range(60):
        demands = [Demand(key, owners[key], 1, is_decoding=True) for key in waits]
        served = {share.key for share in planner.plan(demands, prompt_rows_max=64)}
        waits = {key: 0 if key in served else waits[key] + 1 for key in waits}
        assert waits[8] <= 2
        assert max(waits.values()) <= 8


def test_a_prompt_has_a_place_beside_more_decoding_sequences_than_fit():
    planner = StepPlanner(sequences_max=4)
    many = [decoding(f"d{number}") for number in range(9)]
    assert plan(planner, *many, prompt("p", 7))[-1] == ("p", 7)


def test_what_has_ended_is_forgotten():
    planner = StepPlanner()
    plan(planner, decoding("d"), prompt("p", 3, B))
    plan(planner)
    assert (planner._served, planner._owner_served) == ({}, {})


def test_bounds_hold_for_any_demands():
    dice = random.Random(7)
    planner = StepPlanner(sequences_max=8)
    for _ in range(2_000):
        demands = [
            Demand(
                key, dice.choice((A, B, C)), dice.choice((1, 1, 3, 40, 700)), dice.random() < 0.5
            )
            for key in range(dice.randrange(14))
        ]
        shares = planner.plan(demands, prompt_rows_max=dice.randrange(1, 600))
        by_key = {demand.key: demand for demand in demands}
        assert bool(shares) == bool(demands)
        assert len({share.key for share in shares}) == len(shares) <= 8
        assert sum(share.rows for share in shares) <= CHUNK_TOKENS
        assert all(1 <= share.rows <= by_key[share.key].rows for share in shares)
        assert all(isinstance(share, Share) for share in shares)
