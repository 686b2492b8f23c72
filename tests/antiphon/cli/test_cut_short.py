"""A command that a kill ended half way is completed by the same command."""

from replica.ids import ConversationId
from replica.io.keys import load_or_create
from replica.io.replica import Replica
from tests.antiphon.cli.conftest import Terminal, World


def test_a_deletion_that_ended_once_the_hub_had_deleted_is_completed(
    world: World, me: Terminal
) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("invite", "bob")
    world.background.run(_delete_at_hub(me, world.address, conversation))
    assert me.refused("send", "hello", "--to", conversation) == "CONVERSATION_DELETED"
    done = me.record("delete", conversation, "--hub", "--yes")
    assert (done["deleted"], done["entries_at_hub"]) == (True, 0)
    assert me.records("list") == []
    assert [one["state"] for one in me.records("invitations")] == ["revoked"]


async def _delete_at_hub(terminal: Terminal, address: str, conversation: str) -> None:
    """Do the first half of `antiphon delete --hub`."""
    key = load_or_create(terminal.data_dir / "identity.key")
    async with Replica.open(terminal.store_path, key, address) as replica:
        await replica.calls().delete(ConversationId(bytes.fromhex(conversation)))
