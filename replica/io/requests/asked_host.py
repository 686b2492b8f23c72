"""The host that a request asks."""

from replica.conversation import Conversation
from replica.errors import HostError
from replica.ids import PublicKey, short


class HostMissing(HostError):
    """No model host is a member of this conversation."""

    reason = "HOST_MISSING"
    next_step = (
        "Invite one, `antiphon invite NAME --role host`. Or start one with `antiphon up`, and begin"
        " a conversation with `antiphon new`."
    )


class HostNotMember(HostMissing):
    """The host that is asked for is no host of this conversation."""

    next_step = (
        "`antiphon members` shows its hosts; `antiphon invite NAME --role host` invites one."
    )


def choose_host(
    held: Conversation, linked: tuple[PublicKey, ...], wanted: PublicKey | None = None
) -> PublicKey:
    """Return the host to ask: the wanted one, else the first of `linked` that is a member.

    Without a linked member, any member host. All of them have a grant, so
    vouching only affects the order of `linked`. Raises HostMissing or
    ConversationDamaged.
    """
    held.require_whole()
    hosts = held.log.membership.hosts()
    if wanted is not None and wanted not in hosts:
        raise HostNotMember(f"{short(wanted)} is not a host of this conversation")
    if not hosts:
        raise HostMissing
    return wanted or next((key for key in linked if key in hosts), hosts[0])
