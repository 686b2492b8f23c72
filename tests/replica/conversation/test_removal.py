"""A removed key is told so, and by whom where the log says it."""

import pytest

from replica.conversation import (
    KeyRemoved,
    LastOwner,
    check_owner_stays,
    refusal_of,
    removal_of,
    removal_to_write,
)
from replica.conversation.author import Author
from replica.ids import short
from replica.log.body import Member, Revocation, Role
from replica.refusals import ConversationDeleted, ConversationUnknown, CreateForbidden
from tests.replica.order.turn import Turn
from tests.support.writers import Writer, said


def test_a_removed_key_writes_nothing_more_and_is_told_by_whom() -> None:
    turn, bob = Turn(), Writer(5)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    assert removal_of(turn.held, bob.public) is None
    revocation = Member(Revocation(bob.public, ()))
    turn.admit(turn.ada.write(turn.held.id, revocation, parents=[granted]))
    with pytest.raises(KeyRemoved, match=f"{short(turn.ada.public)} removed it; what is here"):
        Author(bob.key, epoch=3).write(
            turn.held, said("hi"), parents=(turn.answer.id,), salt=bytes(16), time_ms=5
        )


def test_only_a_revocation_that_counts_says_who() -> None:
    turn, bob = Turn(), Writer(5)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    forged = Member(Revocation(bob.public, ()))
    turn.admit(turn.hal.write(turn.held.id, forged, parents=[granted]))
    assert removal_of(turn.held, bob.public) is None
    turn.admit(bob.write(turn.held.id, forged, parents=[granted]))
    assert "it removed itself" in str(removal_of(turn.held, bob.public))


def test_a_hub_that_knows_no_conversation_means_a_removal_to_a_member() -> None:
    turn, stranger = Turn(), Writer(5)
    refused, deleted = ConversationUnknown(), ConversationDeleted()
    found = refusal_of(turn.held, turn.ada.public, refused)
    assert isinstance(found, KeyRemoved)
    assert "an owner removed it" in found.detail
    assert refusal_of(turn.held, turn.ada.public, deleted) is deleted
    assert refusal_of(turn.held, stranger.public, refused) is refused


def test_a_hub_where_few_keys_begin_conversations_tells_no_creator_of_a_removal() -> None:
    turn, bob = Turn(), Writer(5)
    turn.grant(bob, Role.WRITER, turn.genesis)
    refused = CreateForbidden()
    assert refusal_of(turn.held, turn.ada.public, refused) is refused
    assert isinstance(refusal_of(turn.held, bob.public, refused), KeyRemoved)


def test_the_last_owner_stays() -> None:
    turn, bob = Turn(), Writer(5)
    with pytest.raises(LastOwner, match=short(turn.ada.public)):
        check_owner_stays(turn.held, turn.ada.public)
    check_owner_stays(turn.held, turn.hal.public)
    turn.grant(bob, Role.OWNER, turn.genesis)
    check_owner_stays(turn.held, turn.ada.public)


def test_a_reader_leaves_behind_the_genesis_and_without_cuts() -> None:
    turn, reader, writer = Turn(), Writer(5), Writer(6)
    turn.grant(reader, Role.READER, turn.genesis)
    granted = turn.grant(writer, Role.WRITER, turn.genesis)
    left = Member(Revocation(reader.public)), (turn.genesis.id,)
    assert removal_to_write(turn.held, reader.public, reader.public) == left
    _, parents = removal_to_write(turn.held, writer.public, writer.public)
    assert granted.id in parents
    _, parents = removal_to_write(turn.held, turn.ada.public, reader.public)
    assert granted.id in parents, "an owner's removal of it is one like any other"
