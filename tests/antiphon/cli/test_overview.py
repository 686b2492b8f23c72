"""`list` and `status`: the local conversations, in their order and as a hub has them."""

import io

import pytest
from rich.console import Console

from antiphon.cli.commands.overview_tables import ConversationStatus, list_table, status_table
from replica.conversation import Conversation
from replica.ids import ConversationId
from replica.log import Lost
from tests.antiphon.cli.conftest import Terminal


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_has_fewer_columns_and_no_cut_ones(width: int) -> None:
    held = Conversation.restore(ConversationId(bytes(32)), (), Lost(is_unreadable=True))
    status = ConversationStatus(held, 1_234, None, "synchronized")
    tables = status_table([status], width=width), list_table([status], None, width=width)
    for table, last in zip(tables, ("state", "last entry"), strict=True):
        written = io.StringIO()
        Console(width=width, file=written).print(table)
        header = written.getvalue().splitlines()[0]
        assert header.split() == [word for one in table.columns for word in str(one.header).split()]
        assert header.rstrip().endswith(last)
        assert "…" not in header


def test_the_conversation_that_was_written_in_last_is_the_last_one(me: Terminal) -> None:
    begun = [me.record("new")["conversation"] for _ in range(2)]
    for last in begun:
        me.ok("send", "a remark", "--no-request", "--to", last)
        (*_, shown) = me.records("list")
        assert shown["conversation"] == last


def test_where_another_hub_has_the_entries_status_and_send_ask_for_its_address(
    me: Terminal,
) -> None:
    me.ok("new")
    me.ok("status")  # the hub says what it holds
    other = ("status", "--hub-address", "127.0.0.1:1")
    said = me.run(*other).stderr
    assert "no hub was ever met at 127.0.0.1:1; another one has all entries written here" in said
    assert "will be sent" not in said
    sent = me.run("send", "a remark", "--no-request", "--hub-address", "127.0.0.1:1")
    for said in (sent.stderr, me.run(*other).stderr):
        assert "another one has all entries written here but 1" in said
        assert "name it with `--hub-address HOST:PORT`" in said
        assert "when the hub is back" not in said


def test_where_no_hub_has_anything_all_of_it_waits_for_the_hub(me: Terminal) -> None:
    begun = me.run("new", "--no-host", "--hub-address", "127.0.0.1:1").stderr
    assert "offline: 1 entry will be sent when the hub is back" in begun
