"""A hub that refuses a conversation as a whole (spec/04-link §5, §9).

Pure, and private to client_side.py.
"""

from replica import limits
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.events import EntryFailed, SyncState
from replica.link.messages import Fault
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged


def refuses_conversation(fault: Fault, *, is_held: bool) -> bool:
    """Say whether a fault about a conversation refuses all of it, not one entry or frame.

    `is_held`: whether the replica has the conversation in memory.
    """
    match fault.reason:
        case ConversationUnknown.reason:
            return True
        case LanesDiverged.reason:
            return False
        case EntriesMissing.reason if is_held:
            return False
        case _:
            return fault.entry is None and not fault.retryable


def deny(channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
    """Close a channel that the hub refuses; ask again now and then, since a grant may come."""
    channel.recheck_at = now + limits.DENIED_RECHECK_S
    channel.is_open = False
    channel.seedings = min(channel.seedings, 1)  # from now on it sees the membership only
    if channel.state is not SyncState.DENIED:
        channel.change(SyncState.DENIED, out)
        out.deliver.append(EntryFailed(channel.id, None, fault))
