"""Conversations: begun, named, shared, joined."""

from replica.io.conversations import begin, documents, petnames
from replica.io.conversations.invitations import (
    Joined,
    Redeeming,
    invite,
    revoke_invitation,
    void_invitations,
)
from replica.io.conversations.issued_invitations import current_invitation, issued_invitations
from replica.io.conversations.joining import (
    await_grant,
    check_folder,
    check_usable,
    has_joined,
    require_link,
    save_hub,
    saved_hub,
)
from replica.io.conversations.pending_joins import PendingJoin, forget_answered, pending_joins

__all__ = [
    "Joined",
    "PendingJoin",
    "Redeeming",
    "await_grant",
    "begin",
    "check_folder",
    "check_usable",
    "current_invitation",
    "documents",
    "forget_answered",
    "has_joined",
    "invite",
    "issued_invitations",
    "pending_joins",
    "petnames",
    "require_link",
    "revoke_invitation",
    "save_hub",
    "saved_hub",
    "void_invitations",
]
