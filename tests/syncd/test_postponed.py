"""Links that wait for a later step: by conversation, in order, each once."""

from replica.ids import ConversationId
from syncd.connected import LinkId
from syncd.postponed import Postponed

ONE, OTHER = (ConversationId(bytes([n]) * 32) for n in range(2))


def test_each_waits_once_per_conversation_in_order() -> None:
    postponed = Postponed[LinkId]()
    for conversation, number in ((ONE, 2), (ONE, 1), (ONE, 2), (OTHER, 2)):
        postponed.add(conversation, LinkId(number))
    assert list(postponed) == [ONE, OTHER]
    assert [postponed.take(ONE) for _ in range(3)] == [2, 1, None]
    assert list(postponed) == [OTHER]
    assert postponed.take(OTHER) == 2
    assert not postponed


def test_the_first_link_is_one_of_them() -> None:
    postponed = Postponed[LinkId]()
    postponed.add(ONE, LinkId(0))
    assert postponed.take(ONE) == LinkId(0)
    assert postponed.take(ONE) is None


def test_one_may_be_added_while_conversations_are_looked_at() -> None:
    postponed = Postponed[LinkId]()
    postponed.add(ONE, LinkId(0))
    for conversation in postponed:
        postponed.take(conversation)
        postponed.add(OTHER, LinkId(1))
    assert list(postponed) == [OTHER]
