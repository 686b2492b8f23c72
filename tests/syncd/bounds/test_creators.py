"""Which creators a hub knows, in tables that are full (DECISIONS D414)."""

import pytest

from replica.ids import PublicKey
from replica.limits import HALF_LIFE_S, NEWCOMER_S
from syncd.bounds import creators
from syncd.bounds.budget import NEWCOMERS, Budget

KEYS = [PublicKey(bytes([n]) * 32) for n in range(100, 200)]


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creators, "CREATORS_MAX", 20)


def test_a_new_creator_is_known_in_time_behind_a_full_table() -> None:
    budget = Budget()
    honest, *flood = KEYS
    for key in flood:
        budget.payer(key, key, 0.0)
    assert budget.payer(honest, honest, 1.0).pool == NEWCOMERS
    for key in flood[:19]:
        budget.payer(key, key, 2.0)
    assert budget.payer(honest, honest, NEWCOMER_S).pool == NEWCOMERS
    assert budget.payer(honest, honest, 1.0 + NEWCOMER_S).pool == honest
    assert len(budget._creators) <= 2 * 20


def test_a_flood_of_new_creators_takes_no_place_of_a_known_one() -> None:
    budget = Budget()
    ada, *flood = KEYS
    budget.note_established(ada)
    for key in flood:
        budget.payer(key, key, 0.0)
    assert budget.payer(ada, ada, 1.0).pool == ada


def test_a_creator_of_whom_something_is_counted_is_not_forgotten() -> None:
    budget = Budget()
    honest, working, *flood = KEYS
    budget.charge(budget.payer(working, working, 0.0), 5_000, 0.0)
    for key in flood:
        budget.payer(key, key, 0.0)
    assert budget.payer(working, working, NEWCOMER_S).pool == working
    full = Budget()
    for key in flood[:20]:
        full.charge(full.payer(key, key, 0.0), 5_000, 0.0)
    assert full.payer(honest, honest, 1.0).pool == NEWCOMERS
    forgotten = 1.0 + 100 * HALF_LIFE_S  # their work counts no more
    full.payer(honest, honest, forgotten)
    assert full.payer(honest, honest, forgotten + NEWCOMER_S).pool == honest


def test_of_known_creators_the_one_used_longest_ago_is_forgotten() -> None:
    budget = Budget()
    for key in KEYS[:20]:
        budget.note_established(key)
    budget.payer(KEYS[0], KEYS[0], 0.0)
    budget.payer(KEYS[20], KEYS[20], 0.0)
    assert budget.payer(KEYS[20], KEYS[20], NEWCOMER_S).pool == KEYS[20]
    assert budget.payer(KEYS[0], KEYS[0], NEWCOMER_S).pool == KEYS[0]
    assert budget.payer(KEYS[1], KEYS[1], NEWCOMER_S).pool == NEWCOMERS
