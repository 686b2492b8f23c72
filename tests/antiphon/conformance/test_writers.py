"""The kit's author: correct entries, the same for the same seed."""

import pytest

from antiphon.conformance.writers import Writer, said
from replica.conversation import Conversation
from replica.ids import ConversationId
from replica.log import Admitted
from tests.support.writers import low_key


def test_the_same_seed_and_calls_give_the_same_entries_which_are_admitted() -> None:
    written = []
    for _ in range(2):
        writer = Writer(b"seed")
        genesis = writer.genesis()
        held = Conversation(ConversationId(genesis.id))
        one = writer.write(held.id, said("one"), parents=[genesis])
        two = writer.write(held.id, said("two"), parents=[one])
        assert all(isinstance(held.admit(e), Admitted) for e in (genesis, one, two))
        assert two.header.prev == one.id
        written.append((genesis, one, two))
    assert written[0] == written[1]


def test_a_restored_writer_continues_the_same_lane() -> None:
    writer = Writer(b"seed")
    genesis = writer.genesis()
    twin = writer.restored()
    conversation = ConversationId(genesis.id)
    ours = writer.write(conversation, said("ours"), parents=[genesis])
    theirs = twin.write(conversation, said("theirs"), parents=[genesis])
    assert ours.id != theirs.id
    assert ours.position.seq == theirs.position.seq


def test_a_writer_has_a_given_key() -> None:
    key = low_key()
    assert Writer.of_key(key.private_bytes_raw()).public == key.public_key().public_bytes_raw()
    with pytest.raises(ValueError, match="32"):
        Writer.of_key(b"short")
