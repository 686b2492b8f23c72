"""Giving a log to a hub that does not know the conversation (spec/04-link §5, §10).

Pure, and private to exchange.py.
"""

from replica import limits
from replica.conversation import Conversation
from replica.link.channel import Channel
from replica.link.comparison import suffix
from replica.log import MEMBERSHIP_TRACKS

SEEDINGS_MAX = 3
"""Times a client offers a log to a hub that does not know it, before it believes the hub."""


def seed(channel: Channel, held: Conversation, now: float) -> bool:
    """Queue what makes the hub take the conversation; False where it is to be believed.

    The hub may have lost the log, and what is sent may be lost as well; but it may
    also never want it, so later tries are few and show the membership only.
    """
    if held.log.genesis is None or channel.seedings >= SEEDINGS_MAX:
        return False
    channel.in_flight.clear()
    channel.recheck_at = now + limits.RESYNC_S
    channel.seedings += 1
    if held.is_blocked:
        # LINK-34: a hub that lost others of them takes these; without the genesis, one that
        # does not know the conversation begins none.
        channel.queue(held.remaining_membership())
        return True
    everything = suffix(held.log, ())
    channel.is_open = True
    channel.unacked = {entry.id for entry in everything}
    if channel.seedings > 1:
        channel.queue(e.id for e in everything if e.header.track in MEMBERSHIP_TRACKS)
    else:
        channel.queue(entry.id for entry in everything)
        channel.recheck_at = now
    return True
