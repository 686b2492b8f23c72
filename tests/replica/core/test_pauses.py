"""Pauses between tries."""

from replica.core.pauses import Pauses


def test_pauses_double_up_to_their_bound() -> None:
    pauses = Pauses(1.0, 5.0)
    assert [pauses.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_success_makes_the_next_pause_the_first_one() -> None:
    pauses = Pauses(1.0, 5.0)
    for _ in range(3):
        pauses.next_s()
    pauses.reset()
    assert [pauses.next_s() for _ in range(2)] == [1.0, 2.0]
