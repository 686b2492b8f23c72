"""A shelf: the conversations in memory, by id."""

from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.ids import ConversationId

A, B = (Conversation(ConversationId(letter * 32)) for letter in (b"a", b"b"))


def test_a_shelf_has_the_conversations_in_memory_and_no_others():
    shelf = MemoryShelf([A])
    shelf.add(B)
    assert list(shelf) == [A.id, B.id]
    assert shelf.get(A.id) is A
    assert shelf.get(ConversationId(b"?" * 32)) is None


def test_a_conversation_replaces_an_older_one_of_its_id():
    shelf = MemoryShelf([A])
    newer = Conversation(A.id)
    shelf.add(newer)
    assert list(shelf.values()) == [newer]


def test_a_removed_conversation_may_be_removed_again():
    shelf = MemoryShelf([A])
    shelf.remove(A.id)
    shelf.remove(A.id)
    assert len(shelf) == 0
