"""Links that wait for a later step: by conversation and key, in order, each once."""

from replica.ids import ConversationId, EntryId, PublicKey
from syncd.links.connected import LinkId
from syncd.links.postponed import Postponed

ONE, OTHER = ((ConversationId(bytes([n]) * 32), PublicKey(bytes(32))) for n in range(2))

IDS = tuple(EntryId(bytes([n]) * 32) for n in range(3))


def test_each_waits_once_per_key_in_order() -> None:
    postponed = Postponed[LinkId]()
    for key, number in ((ONE, 2), (ONE, 0), (ONE, 2), (OTHER, 2)):
        postponed.add(key, LinkId(number))
    for number in (2, 0):
        assert postponed.first(ONE) == number
        postponed.drop(ONE, LinkId(number))
    assert postponed.first(ONE) is None
    assert postponed.first(OTHER) == 2


def test_a_key_is_new_until_it_is_taken_and_again_once_nobody_waited() -> None:
    postponed = Postponed[LinkId]()
    postponed.add(ONE, LinkId(1))
    postponed.add(ONE, LinkId(2))
    assert postponed.take_new() == [ONE]
    postponed.add(ONE, LinkId(3))
    assert postponed.take_new() == []
    for number in (1, 2, 3):
        postponed.drop(ONE, LinkId(number))
    postponed.add(ONE, LinkId(1))
    assert postponed.take_new() == [ONE]


def test_one_that_does_not_wait_is_dropped_without_effect() -> None:
    postponed = Postponed[LinkId]()
    postponed.drop(ONE, LinkId(1))
    postponed.add(ONE, LinkId(1))
    postponed.drop(ONE, LinkId(2))
    assert postponed.first(ONE) == 1


def test_what_is_offered_to_one_that_waits_is_taken_once_and_in_order() -> None:
    postponed = Postponed[LinkId]()
    postponed.add(ONE, LinkId(1), IDS[:2])
    assert postponed.take_offered(ONE, LinkId(1)) == IDS[:2]
    postponed.add(ONE, LinkId(1), IDS[:1])
    postponed.add(ONE, LinkId(1))
    postponed.add(ONE, LinkId(1), IDS[1:])
    assert postponed.take_offered(ONE, LinkId(1)) == IDS
    assert postponed.take_offered(ONE, LinkId(1)) == ()
    assert postponed.has(ONE, LinkId(1)), "it goes on waiting"
    assert postponed.take_offered(OTHER, LinkId(1)) == ()


def test_a_long_sequence_is_shared_by_those_that_wait() -> None:
    postponed = Postponed[LinkId]()
    for number in range(2):
        postponed.add(ONE, LinkId(number), IDS)
    assert all(postponed.take_offered(ONE, LinkId(number)) is IDS for number in range(2))


def test_the_conversations_of_a_key_are_those_for_which_its_links_wait() -> None:
    postponed = Postponed[LinkId]()
    for key in (ONE, OTHER):
        postponed.add(key, LinkId(1))
    assert {*postponed.conversations(ONE[1])} == {ONE[0], OTHER[0]}
    postponed.drop(ONE, LinkId(1))
    assert postponed.conversations(ONE[1]) == [OTHER[0]]
    postponed.drop(OTHER, LinkId(1))
    assert postponed.conversations(ONE[1]) == []
    assert not postponed._by_peer
