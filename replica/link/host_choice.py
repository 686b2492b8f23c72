"""The choice of the model host a new conversation is granted to (spec/04-link, LINK-31).

A grant lets a host read the whole conversation. Anyone may link to a hub as a
host, so being linked is no reason for a grant (DECISIONS D45).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from replica.ids import PublicKey
from replica.link.messages import LinkedHost
from replica.refusals import NoHost


class HostReason(Enum):
    """The reason for choosing a host."""

    NAMED = "named"
    """Named for this conversation."""
    PINNED = "pinned"
    """Named in the client's settings."""
    VOUCHED = "vouched"
    """The hub the client authenticated vouches for it."""


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The host to grant a new conversation to, and the reason."""

    key: PublicKey
    reason: HostReason


def host_to_grant(
    named: PublicKey | None, pinned: PublicKey | None, linked: Sequence[LinkedHost]
) -> HostChoice:
    """Choose the host for a new conversation; `linked` are the Welcome's hosts, in its order.

    A named or pinned host need not be linked. Raises NoHost.
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
