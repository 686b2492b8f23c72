"""Each entry is counted by one of the appends that bring it."""

from replica.io.store.appending import Appending
from tests.support.sample import Sample


def test_an_entry_is_new_to_the_append_that_began_first() -> None:
    sample, appending = Sample(), Appending()
    first = sample.say(sample.genesis)
    second = sample.say(first)
    with appending.new_of([first]) as new:
        assert new == [first]
        with appending.new_of([first, second]) as rest:
            assert rest == [second]
        with appending.new_of([second]) as again:
            assert again == [second]
    with appending.new_of([first]) as later:
        assert later == [first]
