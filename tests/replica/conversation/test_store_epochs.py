"""The epochs of one store are not those of another."""

from random import Random

from replica.conversation.store_epochs import CHANCE_BYTES, StoreEpochs


def test_a_store_knows_its_own_epochs_alone() -> None:
    chance, one, other = Random(7), StoreEpochs(b"one"), StoreEpochs(b"other")
    made = [one.new(chance.randbytes(CHANCE_BYTES)) for _ in range(1_000)]
    assert all(map(one.is_own, made))
    assert not any(map(other.is_own, made))
    assert all(map(StoreEpochs(b"one").is_own, made)), "also when it is opened again"
    assert len({*made}) == 1_000
    assert all(0 < epoch < 2**64 for epoch in made)


def test_random_epochs_of_other_programs_are_not_own() -> None:
    chance, one = Random(7), StoreEpochs(b"one")
    assert not any(one.is_own(chance.getrandbits(64)) for _ in range(1_000))
