"""The joins of a replica that its inviters have not answered, as one small row of its store.

The row has no secret of a code: whoever goes on gives the code again.
"""

import json
from dataclasses import dataclass
from typing import Any

from replica.conversation import EntryStore, Invitation
from replica.ids import ConversationId, PublicKey
from replica.io import rpc
from replica.io.replica import Replica
from replica.limits import INVITATION_LIFETIME_S
from replica.log import Role
from replica.refusals import ValueDamaged

_JOINS = "pending joins"


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A proof that was left at a hub, and had no answer when last asked about."""

    mailbox: bytes
    conversation: ConversationId
    inviter: PublicKey
    role: Role
    hub_address: str
    expire_time_ms: int
    """When the code expires; the record is kept for a day longer."""


async def pending_joins(store: EntryStore) -> list[PendingJoin]:
    """Return the joins without an answer, oldest first; none if they are damaged."""
    try:
        raw = await store.get_meta(_JOINS)
    except ValueDamaged:
        return []  # joining with the code goes on all the same, and makes the record anew
    return [_join(record) for record in json.loads(raw)] if raw else []


async def record_join(replica: Replica, invitation: Invitation, *, is_pending: bool) -> None:
    """Record that a join waits for its answer, or remove the record: it has one."""
    join = PendingJoin(
        invitation.mailbox, invitation.conversation, invitation.inviter, invitation.role,
        invitation.hub_address, invitation.expire_time_ms,
    )  # fmt: skip
    async with replica.processes.changing(_JOINS):
        held = await pending_joins(replica.store)
        if (join in held) == is_pending:
            return
        oldest_ms = rpc.now_ms() - INVITATION_LIFETIME_S * 1000
        kept = [one for one in held if one != join and one.expire_time_ms >= oldest_ms]
        records = [_record(one) for one in (*kept, *([join] if is_pending else []))]
        await replica.store.put_meta(_JOINS, json.dumps(records).encode())


def _record(join: PendingJoin) -> dict[str, Any]:
    return {
        "mailbox": join.mailbox.hex(),
        "conversation": join.conversation.hex(),
        "inviter": join.inviter.hex(),
        "role": int(join.role),
        "hub": join.hub_address,
        "expires_ms": join.expire_time_ms,
    }


def _join(record: dict[str, Any]) -> PendingJoin:
    return PendingJoin(
        bytes.fromhex(record["mailbox"]),
        ConversationId(bytes.fromhex(record["conversation"])),
        PublicKey(bytes.fromhex(record["inviter"])),
        Role(record["role"]),
        record["hub"],
        record["expires_ms"],
    )
