"""Sending a log to a hub that does not know the conversation (spec/04-link §5, §10).

Pure, and private to client_side.py. "Not found" covers absent, lost and
forbidden (DECISIONS D21). A blocked replica seeds without the genesis
(DECISIONS D47).
"""

from replica import limits
from replica.conversation import Conversation
from replica.link import comparison
from replica.link.channel import Channel
from replica.log import MEMBERSHIP_TRACKS


def seed(channel: Channel, held: Conversation, now: float) -> bool:
    """Queue the log for the hub; return False if the hub's refusal is final.

    The hub may have lost the log, and the entries sent may be lost as well. But
    it may also refuse them for good, so later tries are few and send the
    membership entries only.
    """
    if held.log.genesis is None or channel.seedings >= limits.SEEDINGS_MAX:
        return False
    channel.in_flight.clear()
    channel.recheck(now + limits.RESYNC_S)
    channel.seedings += 1
    if held.is_blocked:
        # LINK-34: a hub that lost these membership entries admits them. Without the genesis,
        # a hub that does not know the conversation does not begin it.
        channel.queue(held.remaining_membership())
        return True
    everything = comparison.everything(held.log)
    channel.is_open = True
    channel.unacked = {entry.id for entry in everything}
    if channel.seedings > 1:
        channel.queue(e.id for e in everything if e.header.track in MEMBERSHIP_TRACKS)
    else:
        channel.queue(entry.id for entry in everything)
        channel.recheck_at = now
    return True
