"""`list`: the local conversations, in the order of their last entries."""

from tests.antiphon.cli.conftest import Terminal


def test_the_conversation_that_was_written_in_last_is_the_last_one(me: Terminal) -> None:
    begun = [me.record("new")["conversation"] for _ in range(2)]
    for last in begun:
        me.ok("send", "a remark", "--no-request", "--to", last)
        (*_, shown) = me.records("list")
        assert shown["conversation"] == last
