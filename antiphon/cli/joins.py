"""The joins that wait for an inviter, as `list` and `status` show them. Pure."""

from collections.abc import Iterable
from typing import Any

from replica.conversation import Conversation, InviteExpired, JoinPending
from replica.ids import PublicKey, short
from replica.io import PendingJoin
from replica.limits import INVITATION_LIFETIME_S


def still_pending(
    joins: Iterable[PendingJoin],
    held: Iterable[Conversation],
    own: PublicKey | None,
    now_ms: int,
) -> list[PendingJoin]:
    """Return the joins that are to be shown.

    One whose role is held has succeeded, as where `clone` fetched the conversation. One whose
    code has expired is shown for a day.
    """
    roles = {one.id: one.log.membership.roles.get(own, ()) for one in held if own is not None}
    oldest_ms = now_ms - INVITATION_LIFETIME_S * 1000
    return [
        join
        for join in joins
        if join.role not in roles.get(join.conversation, ()) and join.expire_time_ms >= oldest_ms
    ]


def join_words(join: PendingJoin, now_ms: int) -> str:
    """Return a join that waits as one line, with what to do."""
    role = join.role.name.lower()
    words = f"{short(join.conversation)}  joining as {role}: no answer of {short(join.inviter)}"
    if _is_expired(join, now_ms):
        ask = "ask the inviter for another code"
        return f"{words} before the code expired [{InviteExpired.reason}]. next: {ask}"
    step = "antiphon join CODE, once the inviter is online"
    return f"{words} when last asked [{JoinPending.reason}]. next: {step}"


def join_record(join: PendingJoin, now_ms: int) -> dict[str, Any]:
    """Return a join that waits as a JSON object."""
    return {
        "conversation": join.conversation.hex(),
        "role": join.role.name.lower(),
        "inviter": join.inviter.hex(),
        "hub": join.hub_address,
        "state": "expired" if _is_expired(join, now_ms) else "pending",
        "expires_ms": join.expire_time_ms,
    }


def _is_expired(join: PendingJoin, now_ms: int) -> bool:
    return now_ms >= join.expire_time_ms
