"""Which model host a new conversation is granted to (spec/04-link, LINK-31).

A grant gives a host everything that is said. Anyone may link to a hub as a
host, so being linked is no reason for one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from replica.ids import PublicKey
from replica.link.messages import LinkedHost
from replica.refusals import NoHost


class HostReason(Enum):
    """Why a host was chosen."""

    NAMED = "named"
    """Given for this conversation."""
    PINNED = "pinned"
    """Set in the client's own settings."""
    VOUCHED = "vouched"
    """The hub the client authenticated vouches for it."""


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The host to grant a new conversation to, and why."""

    key: PublicKey
    reason: HostReason


def host_to_grant(
    named: PublicKey | None, pinned: PublicKey | None, linked: Sequence[LinkedHost]
) -> HostChoice:
    """Choose the host for a new conversation; `linked` are those of the hub's Welcome, in order.

    A host named or pinned need not be linked. Raises NoHost.
    """
    if named is not None:
        return HostChoice(named, HostReason.NAMED)
    if pinned is not None:
        return HostChoice(pinned, HostReason.PINNED)
    for host in linked:
        if host.vouched:
            return HostChoice(host.key, HostReason.VOUCHED)
    if linked:
        raise NoHost(f"the hub vouches for none of the model hosts linked to it ({len(linked)})")
    raise NoHost("there is no model host to grant the conversation to")
