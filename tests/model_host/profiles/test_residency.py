"""Profiles are loaded within a budget, and one with running work is never unloaded."""

import random

import pytest

from model_host.errors import ProfileTooLarge
from model_host.profiles.residency import Residency
from replica.ids import Digest

A, B, C, HUGE = (Digest(name * 32) for name in (b"a", b"b", b"c", b"h"))
NEED = {A: 10, B: 10, C: 15, HUGE: 31}


def residency(*loaded: Digest) -> Residency:
    made = Residency(NEED, 30)
    for profile in loaded:
        made.add(profile)
    return made


def test_a_profile_is_used_only_while_it_is_loaded() -> None:
    held = residency()
    assert not held.use(A)
    assert held.room_for(A) == []
    held.add(A)
    assert held.use(A)


def test_the_least_recently_used_idle_profile_makes_room() -> None:
    held = residency(A, B)
    assert held.use(A)
    held.release(A)
    assert held.room_for(C) == [B]
    held.remove(B)
    held.add(C)
    assert held.loaded_bytes == 25
    assert held.use(C)


def test_a_profile_with_running_work_is_not_unloaded() -> None:
    held = residency(A, B)
    assert held.use(A)
    assert held.use(A)
    assert held.use(B)
    assert held.room_for(C) is None
    held.release(A)
    assert held.room_for(C) is None
    held.release(A)
    assert held.room_for(C) == [A]


def test_while_one_waits_for_room_no_other_comes_into_use() -> None:
    held = residency(A, B)
    assert held.use(A)
    assert held.use(B)
    assert held.room_for(C) is None
    assert not held.use(A)
    held.give_up()
    assert held.use(A)


def test_a_profile_that_never_fits_is_refused_and_nothing_is_unloaded() -> None:
    held = residency(A, B)
    with pytest.raises(ProfileTooLarge, match=r"31 bytes .* memory_bytes_max is 30"):
        held.room_for(HUGE)
    assert held.loaded_bytes == 20
    assert held.use(A)
    assert held.use(B)


def test_no_order_of_uses_exceeds_the_budget_or_unloads_work() -> None:
    for seed in range(200):
        rng, held = random.Random(seed), residency()
        uses, loaded = dict.fromkeys((A, B, C), 0), set[Digest]()
        for _ in range(60):
            profile = rng.choice((A, B, C))
            if uses[profile] and rng.random() < 0.5:
                held.release(profile)
                uses[profile] -= 1
            elif held.use(profile):
                assert profile in loaded
                uses[profile] += 1
            elif profile not in loaded:
                unloaded = held.room_for(profile)
                if unloaded is None:
                    assert sum(NEED[p] for p, n in uses.items() if n) + NEED[profile] > 30
                    continue
                for other in unloaded:
                    assert not uses[other]
                    held.remove(other)
                    loaded.remove(other)
                held.add(profile)
                loaded.add(profile)
                held.give_up()
            assert held.loaded_bytes == sum(NEED[one] for one in loaded) <= 30
