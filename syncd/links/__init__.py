"""Links and Watches: who has what open, what each is sent, and long messages in parts."""

from syncd.links import fan_out, watch
from syncd.links.connected import Connected, LinkId
from syncd.links.delivery import Outgoing, delivered
from syncd.links.fan_out import FanOut, HubEffects, list_more
from syncd.links.hint import Answered, Hint, OwnHead
from syncd.links.parts import parts
from syncd.links.postponed import Key

__all__ = [
    "Answered",
    "Connected",
    "FanOut",
    "Hint",
    "HubEffects",
    "Key",
    "LinkId",
    "Outgoing",
    "OwnHead",
    "delivered",
    "fan_out",
    "list_more",
    "parts",
    "watch",
]
