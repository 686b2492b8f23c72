"""`list` and `status`: the local conversations, in their order and as a hub has them."""

from tests.antiphon.cli.conftest import Terminal


def test_the_conversation_that_was_written_in_last_is_the_last_one(me: Terminal) -> None:
    begun = [me.record("new")["conversation"] for _ in range(2)]
    for last in begun:
        me.ok("send", "a remark", "--no-request", "--to", last)
        (*_, shown) = me.records("list")
        assert shown["conversation"] == last


def test_where_another_hub_has_all_entries_status_asks_for_its_address(
    me: Terminal,
) -> None:
    me.ok("new")
    me.ok("status")  # the hub says what it holds
    other = ("status", "--hub-address", "127.0.0.1:1")
    said = me.run(*other).stderr
    assert "no hub was ever met at 127.0.0.1:1; another one has all entries written here" in said
    assert "will be sent" not in said
    me.ok("send", "a remark", "--no-request", "--hub-address", "127.0.0.1:1")
    assert "will be sent when the hub is back" in me.run(*other).stderr
