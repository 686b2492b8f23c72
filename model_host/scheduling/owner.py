"""The owner that the derived state of a conversation belongs to (spec/07-host §4). Pure."""

from replica.conversation import Conversation
from replica.ids import EntryId, PublicKey
from replica.log import Genesis


def owner_of(held: Conversation) -> PublicKey:
    """Return the first owner that the genesis names: memory and turns are shared by owner."""
    return _genesis(held).owners[0]


def shares_pages(held: Conversation) -> bool:
    """Say whether the genesis consents to sharing with others of its kind (PAGE-7)."""
    return _genesis(held).shares_pages


def _genesis(held: Conversation) -> Genesis:
    genesis = held.log.body(EntryId(held.id))
    assert isinstance(genesis, Genesis), "a followed conversation has its genesis"
    return genesis
