"""Token ids of peers: a tuple in all respects but its memory."""

from hypothesis import given
from hypothesis import strategies as st

from replica.conversation import TokenIds

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=20).map(tuple)


@given(IDS, IDS, st.slices(20))
def test_ids_read_like_a_tuple_of_them(one: tuple[int, ...], two: tuple[int, ...], at: slice):
    ids = TokenIds(one)
    assert (len(ids), tuple(ids), ids[at]) == (len(one), one, one[at])
    assert [ids[i] for i in range(len(one))] == list(one)
    assert (ids == two) == (two == ids) == (ids == TokenIds(two)) == (one == two)
    assert ids == one
    assert hash(ids) == hash(one)
    assert ids != list(one)


def test_ids_are_shown() -> None:
    assert repr(TokenIds((1, 2))) == "TokenIds([1, 2])"
