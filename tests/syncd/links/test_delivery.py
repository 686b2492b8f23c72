"""Membership is asked again when a queued message is written (LINK-16)."""

from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Ack, Close, Fault, Listing, ListingItem, Pong
from replica.log import Entry, Grant, Member, Revocation, Role
from replica.refusals import (
    ConversationDeleted,
    ConversationUnknown,
    EntriesMissing,
    LanesDiverged,
    StoreFull,
)
from syncd.hub import Hub
from syncd.links.delivery import Outgoing, delivered
from syncd.links.hint import Hint
from syncd.policy import Policy
from tests.support.writers import Writer

OWNER, READER = Writer(1), Writer(2)
GENESIS = OWNER.genesis()
ID = ConversationId(GENESIS.id)
GRANT = OWNER.write(ID, Member(Grant(READER.public, Role.READER)), parents=[GENESIS])
REVOKED = OWNER.write(ID, Member(Revocation(READER.public)), parents=[GRANT])
NOT_FOUND = Close(ID, Fault.of(ConversationUnknown(), ID))
MESSAGE = Ack(ID, (GENESIS.id,))


def hub_with(*entries: Entry) -> Hub:
    hub = Hub(Writer(9).public, Policy())
    hub.load(ID, list(entries))
    return hub


def delivered_by(hub: Hub, peer: PublicKey, message: Outgoing) -> Outgoing | None:
    return delivered(hub.shelf, hub.deleted, peer, message)


def test_a_member_gets_what_was_queued_for_it():
    assert delivered_by(hub_with(GENESIS, GRANT), READER.public, MESSAGE) is MESSAGE


def test_a_revoked_member_gets_a_close_in_place_of_what_was_queued():
    hub = hub_with(GENESIS, GRANT, REVOKED)
    hint = Hint(ID, None, (), 1, (), ())
    for message in (MESSAGE, hint):
        assert delivered_by(hub, READER.public, message) == NOT_FOUND
        assert delivered_by(hub, OWNER.public, message) is message
    hub.shelf.index(hub.shelf[ID])
    assert delivered_by(hub, READER.public, MESSAGE) == NOT_FOUND


def test_a_revoked_member_gets_no_fault_that_names_entries():
    hub = hub_with(GENESIS, GRANT, REVOKED)
    lost, diverged = EntriesMissing(missing=[EntryId(GRANT.id)]), LanesDiverged("seq 1")
    for message in (Fault.of(lost, ID), Fault.of(diverged, ID)):
        assert delivered_by(hub, READER.public, message) == NOT_FOUND
        assert delivered_by(hub, OWNER.public, message) is message


def test_of_a_list_a_key_gets_the_items_of_its_own_conversations():
    other = READER.genesis()
    hub = hub_with(GENESIS, GRANT, REVOKED)
    hub.load(ConversationId(other.id), [other])
    gone, own = (ListingItem(ConversationId(e.id)) for e in (GENESIS, other))
    assert delivered_by(hub, READER.public, Listing((gone, own))) == Listing((own,))
    assert delivered_by(hub, READER.public, Listing((gone,))) is None
    whole = Listing((gone,))
    assert delivered_by(hub, OWNER.public, whole) is whole
    hub.shelf.index(hub.shelf[ID])
    assert delivered_by(hub, READER.public, Listing((gone,))) is None
    assert delivered_by(hub, OWNER.public, whole) is whole
    hub.disk_refused(frozenset({ID}), Fault.of(StoreFull()))
    assert delivered_by(hub, OWNER.public, whole) is None


def test_ends_and_messages_about_the_link_pass():
    hub = hub_with(GENESIS, GRANT, REVOKED)
    for message in (Close(ID), Close(None), Fault.of(StoreFull(), ID), Pong(1, 0, 0)):
        assert delivered_by(hub, READER.public, message) is message


def test_unknown_members_get_nothing_but_the_true_reason():
    hub = hub_with(GENESIS, GRANT, REVOKED)
    closed = Close(ID, Fault.of(StoreFull(), ID))
    hub.disk_refused(frozenset({ID}), Fault.of(StoreFull()))
    for reader in (OWNER, READER):
        assert delivered_by(hub, reader.public, MESSAGE) is None
        assert delivered_by(hub, reader.public, closed) is closed


def test_nobody_gets_what_was_queued_of_a_deleted_conversation():
    hub = hub_with(GENESIS, GRANT)
    hub.delete(ID)
    closed = Close(ID, Fault.of(ConversationDeleted(), ID))
    assert delivered_by(hub, OWNER.public, MESSAGE) is None
    assert delivered_by(hub, OWNER.public, closed) is closed


def test_messages_about_a_conversation_that_is_not_here_pass():
    hub = Hub(Writer(9).public, Policy())
    assert delivered_by(hub, OWNER.public, MESSAGE) is MESSAGE
