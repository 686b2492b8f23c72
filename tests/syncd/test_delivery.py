"""Membership is asked again when a queued message is written (LINK-16)."""

from replica.conversation import Conversation
from replica.ids import ConversationId
from replica.link import Ack, Close, Fault, Pong
from replica.log import Grant, Member, Revocation, Role
from replica.refusals import ConversationUnknown, StoreFull
from syncd.delivery import withheld
from syncd.hint import Hint
from syncd.shelf import HubShelf
from tests.support.writers import Writer

OWNER, READER = Writer(1), Writer(2)
GENESIS = OWNER.genesis()
ID = ConversationId(GENESIS.id)
GRANT = OWNER.write(ID, Member(Grant(READER.public, Role.READER)), parents=[GENESIS])
REVOKED = OWNER.write(ID, Member(Revocation(READER.public)), parents=[GRANT])
NOT_FOUND = Close(ID, Fault.of(ConversationUnknown(), ID))
MESSAGE = Ack(ID, (GENESIS.id,))


def shelf_with(*entries) -> HubShelf:
    shelf = HubShelf(10)
    shelf.load(Conversation.restore(ID, entries))
    return shelf


def test_a_member_gets_what_was_queued_for_it():
    assert withheld(shelf_with(GENESIS, GRANT), READER.public, MESSAGE) is None


def test_a_revoked_member_gets_a_close_in_place_of_what_was_queued():
    shelf = shelf_with(GENESIS, GRANT, REVOKED)
    hint = Hint(ID, None, (), 1, (), ())
    for message in (MESSAGE, hint):
        assert withheld(shelf, READER.public, message) == NOT_FOUND
        assert withheld(shelf, OWNER.public, message) is None
    shelf.index(shelf[ID])
    assert withheld(shelf, READER.public, MESSAGE) == NOT_FOUND


def test_ends_and_messages_about_the_link_pass():
    shelf = shelf_with(GENESIS, GRANT, REVOKED)
    for message in (Close(ID), Close(None), Fault.of(StoreFull(), ID), Pong(1, 0, 0)):
        assert withheld(shelf, READER.public, message) is None


def test_unknown_members_withhold_nothing_so_that_the_true_reason_follows():
    shelf = shelf_with(GENESIS, GRANT)
    shelf.invalidate(ID)
    assert withheld(shelf, READER.public, MESSAGE) is None
