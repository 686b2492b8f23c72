"""What links were not sent at once, since they are many or a fold paused (LINK-92). Pure."""

from replica.link import Link, is_walking
from syncd.hub import Hub
from syncd.links import FanOut, HubEffects, Key, fan_out


def next_link(hub: Hub, key: Key) -> Link | None:
    """Return the link that `resume` sends to first; None if none waits."""
    link_id = hub.connected.postponed.first(key)
    return hub.links[link_id] if link_id is not None else None


def resume(hub: Hub, key: Key) -> HubEffects:
    """Send as many links of a key as a step may what waits for them; they share a hint.

    One that walks through a backlog comes first in its step, since it is prepared before.
    """
    out, postponed = FanOut(hub.connected, hub.shelf, 0.0), hub.connected.postponed
    while out.cost < fan_out.SEND_COST_MAX and (link_id := postponed.first(key)) is not None:
        if out.cost and is_walking(hub.links[link_id]):
            break
        out.resume(link_id, key[0])
        postponed.drop(key, link_id)
    return out.build()
