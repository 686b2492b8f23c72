"""Payers have their turns one by one, each in the order of its own work."""

from model_host.scheduling.payer_ring import PayerRing


def test_payers_take_turns_and_keep_their_own_order() -> None:
    ring = PayerRing[int]()
    for number in range(4):
        ring.add(b"many", number)
    ring.add(b"one", 9)
    assert len(ring) == 5
    assert [ring.next() for _ in range(2)] == [0, 9]
    ring.add(b"new", 7)  # behind those who wait
    assert [ring.next() for _ in range(4)] == [1, 7, 2, 3]
    assert not ring
