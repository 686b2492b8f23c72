"""The lasting refusal of a hub, as last heard: no entry tells a removed key of its removal."""

from antiphon.cli.common.session import Session
from replica.conversation import Conversation, EntryStore, refusal_of, removal_of
from replica.errors import AntiphonError
from replica.io import SavedAcks, SavedEndings, error_of


async def ending_of(
    session: Session, store: EntryStore, acks: SavedAcks, held: Conversation
) -> AntiphonError | None:
    """Return why the hub takes nothing of a conversation from this key ever again.

    None where it does, and where the log itself tells of the removal.
    """
    ending, own = await SavedEndings(store, acks).load(held.id), session.own_key()
    if ending is None or own is None or removal_of(held, own) is not None:
        return None
    return refusal_of(held, own, error_of(ending))
