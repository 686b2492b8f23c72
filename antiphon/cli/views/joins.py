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

    One that a conversation shows to be answered is not, as where `clone` fetched that. One whose
    code has expired is shown for a day.
    """
    by_id = {one.id: one for one in held}
    oldest_ms = now_ms - INVITATION_LIFETIME_S * 1000

    def is_answered(join: PendingJoin) -> bool:
        one = by_id.get(join.conversation)
        return one is not None and own is not None and join.is_answered_in(one, own)

    return [join for join in joins if join.expire_time_ms >= oldest_ms and not is_answered(join)]


def join_lines(joins: Iterable[PendingJoin], now_ms: int, again: str) -> list[str]:
    """Return the joins that wait as lines, with what to do: one for all codes for the same.

    `again` is the command that joins with a code.
    """
    alike: dict[tuple[Any, ...], list[PendingJoin]] = {}
    for join in joins:
        what = (join.conversation, join.role, join.inviter, _is_expired(join, now_ms))
        alike.setdefault(what, []).append(join)
    return [_words(found[0], len(found), now_ms, again) for found in alike.values()]


def _words(join: PendingJoin, codes: int, now_ms: int, again: str) -> str:
    role = join.role.name.lower() + (f" by {codes} codes" if codes > 1 else "")
    words = f"{short(join.conversation)}  joining as {role}: no answer of {short(join.inviter)}"
    if _is_expired(join, now_ms):
        ask = "ask the inviter for another code"
        what = "the code" if codes == 1 else "they"
        return f"{words} before {what} expired [{InviteExpired.reason}]. next: {ask}"
    step = f"{again}, once the inviter is online"
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
