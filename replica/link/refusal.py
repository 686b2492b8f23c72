"""Refusals of whole conversations by a hub (spec/04-link §5, §9).

Pure, and private to client_side.py.
"""

from dataclasses import replace

from replica import limits
from replica.ids import EntryId
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.events import EntryFailed, SyncState
from replica.link.messages import Fault
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged


def refuses_conversation(fault: Fault, *, is_held: bool) -> bool:
    """Say whether a fault refuses a whole conversation, not one entry or frame.

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


def cause_of(channel: Channel, unknown: Fault) -> Fault:
    """Return why the hub knows no such conversation: it refused the genesis, if it said so."""
    fault = channel.refused.get(EntryId(channel.id))
    return replace(fault, entry=None) if fault is not None else unknown


def deny(channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
    """Close a refused channel, and ask again later, since a grant may be added."""
    channel.recheck(now + limits.DENIED_RECHECK_S)
    channel.is_open = False
    channel.seedings = min(channel.seedings, 1)  # later tries send membership only
    if channel.state is not SyncState.DENIED:
        channel.change(SyncState.DENIED, out)
        out.deliver.append(EntryFailed(channel.id, None, fault))
