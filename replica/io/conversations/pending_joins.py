"""The joins of a replica that its inviters have not answered, as one small row of its store.

The row has no secret of a code: whoever goes on gives the code again.
"""

import json
from dataclasses import dataclass
from typing import Any

from replica.conversation import Conversation, EntryStore, Invitation
from replica.errors import StoreError
from replica.ids import ConversationId, PublicKey
from replica.io.driver import Replica
from replica.io.serving import rpc
from replica.limits import INVITATION_LIFETIME_S
from replica.log import Role
from replica.refusals import ConversationUnknown, ValueDamaged

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

    def is_answered_in(self, held: Conversation, key: PublicKey) -> bool:
        """Say whether a conversation shows that a key got its role here, or was removed since."""
        if held.id != self.conversation:
            return False
        membership = held.log.membership
        return self.role in membership.roles.get(key, ()) or key in membership.kept


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
        await _save(replica.store, [*kept, *([join] if is_pending else [])])


async def forget_answered(replica: Replica, conversation: ConversationId) -> None:
    """Remove the joins that a conversation shows to be answered, before it is deleted.

    Such a join is not asked about again where the conversation came another way than by it.
    """
    joins = await pending_joins(replica.store)
    if all(join.conversation != conversation for join in joins):
        return
    try:
        held = await replica.load(conversation)
    except (StoreError, ConversationUnknown):
        return  # what can't be read shows nothing
    async with replica.processes.changing(_JOINS):
        joins = await pending_joins(replica.store)
        kept = [join for join in joins if not join.is_answered_in(held, replica.public)]
        if kept != joins:
            await _save(replica.store, kept)


async def _save(store: EntryStore, joins: list[PendingJoin]) -> None:
    await store.put_meta(_JOINS, json.dumps([_record(join) for join in joins]).encode())


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
