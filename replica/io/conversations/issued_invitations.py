"""The invitations that a replica has made, as one small row of its store (DECISIONS D277, D413).

They are changed by whoever is `Processes.changing(ISSUED)`.
"""

import json
from collections.abc import Iterable
from typing import Any

from replica.conversation import (
    EntryStore,
    Issued,
    decode_invitation,
    encode_invitation,
    noted,
)
from replica.ids import ConversationId, PublicKey
from replica.io.serving import rpc
from replica.limits import INVITATION_LIFETIME_S, MAILBOXES_PER_KEY_MAX
from replica.log import Grant
from replica.refusals import ValueDamaged

ISSUED = "invitations"
"""The key of the row."""


async def issued_invitations(store: EntryStore) -> list[Issued]:
    """Return the invitations recorded here, oldest first. Raises ValueDamaged."""
    raw = await store.get_meta(ISSUED)
    return [_issued(record) for record in json.loads(raw)] if raw else []


async def save(store: EntryStore, records: Iterable[Issued], now_ms: int) -> None:
    """Store the records, except those that ended more than a day ago; for whoever is `changing`.

    Of the revoked ones the newest are kept, as many as may be open at once.
    """
    oldest_ms = now_ms - INVITATION_LIFETIME_S * 1000
    kept = [one for one in records if one.invitation.expire_time_ms >= oldest_ms]
    gone = [one for one in kept if one.is_revoked][:-MAILBOXES_PER_KEY_MAX]
    kept = [one for one in kept if one not in gone]
    await store.put_meta(ISSUED, json.dumps([_record(one) for one in kept]).encode())


async def update(store: EntryStore, changed: Issued) -> None:
    """Store a changed record; the caller is `changing` them."""
    records = await issued_invitations(store)
    same = changed.invitation.secret
    renewed = [changed if one.invitation.secret == same else one for one in records]
    await save(store, renewed, rpc.now_ms())


async def current_invitation(store: EntryStore, issued: Issued) -> Issued:
    """Return an invitation as it is recorded now."""
    same = issued.invitation.secret
    records = await issued_invitations(store)
    return next((one for one in records if one.invitation.secret == same), issued)


async def note_grant(store: EntryStore, conversation: ConversationId, grant: Grant) -> None:
    """Record a grant before it is written; the caller is `changing` the records until it is."""
    try:
        records, now_ms = await issued_invitations(store), rpc.now_ms()
    except ValueDamaged:
        return  # no invitation can be redeemed
    renewed = [noted(one, conversation, grant, now_ms) for one in records]
    if renewed != records:
        await save(store, renewed, now_ms)


def _record(issued: Issued) -> dict[str, Any]:
    return {
        "code": encode_invitation(issued.invitation),
        "name": issued.name,
        "created_ms": issued.create_time_ms,
        "claimed_by": issued.claimed_by.hex() if issued.claimed_by is not None else None,
        "revoked": issued.is_revoked,
        "granted": [[grant.key.hex(), int(grant.role)] for grant in issued.granted],
    }


def _issued(record: dict[str, Any]) -> Issued:
    claimed = record["claimed_by"]
    return Issued(
        decode_invitation(record["code"]),
        record["name"],
        record["created_ms"],
        PublicKey(bytes.fromhex(claimed)) if claimed is not None else None,
        record["revoked"],
        tuple(
            Grant(PublicKey(bytes.fromhex(key)), role) for key, role in record.get("granted", ())
        ),
    )
