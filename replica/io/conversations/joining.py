"""Joining with a code: pin the hub it states, leave the proof, wait for the grant (spec/09 §5)."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from antiphon.v1 import invitation_pb2 as pb
from antiphon.v1.invitation_pb2_grpc import InvitationServiceStub
from replica.conversation import (
    EntryStore,
    Invitation,
    InviteExpired,
    check_verdict,
    is_address,
    is_answer,
)
from replica.errors import AntiphonError, ReplicaClosed, StoreError, Unavailable, with_step
from replica.ids import ConversationId, PublicKey, short
from replica.io.calls import HubCalls, pinned_key
from replica.io.conversations.pending_joins import record_join
from replica.io.driver import Replica, restored
from replica.io.files import replacing, typed_errors
from replica.io.serving import rpc
from replica.io.store import HUB_FILE
from replica.refusals import ArgumentInvalid, HubUnreachable, PeerIdentityChanged

POLL_FIRST_S = 0.5
POLL_MAX_S = 4.0


class OwnInvitation(ArgumentInvalid):
    """Whoever joins with a code uses it up, also its inviter."""

    next_step = (
        "Give it to the person it is for. On another device with this key, `antiphon clone` fetches"
        " the conversation."
    )


class FolderOfAnotherHub(ArgumentInvalid):
    """The code is for another hub, which would get the conversations of this folder."""

    next_step = (
        "Join in another folder: `antiphon join CODE --data-dir FOLDER`, or"
        " `antiphon.join(code, folder)`. If the hub of the code may have all conversations of this"
        " folder, send them there first: `antiphon status --hub-address HOST:PORT`."
    )


async def check_usable(store: EntryStore, invitation: Invitation, newcomer: PublicKey) -> None:
    """Refuse a code before it is used.

    Raises OwnInvitation, InviteExpired unless `newcomer` has joined before, and
    PeerIdentityChanged where another key than the code's is pinned for its hub. The code's key
    is pinned once the hub has proved it: a wrong code changes nothing here.
    """
    if invitation.inviter == newcomer:
        raise OwnInvitation("this key made the code itself, and is a member already")
    if rpc.now_ms() >= invitation.expire_time_ms and not await has_joined(
        store, invitation, newcomer
    ):
        raise _expired(invitation)
    address, stated = invitation.hub_address, invitation.hub_key
    pinned = await pinned_key(store, address)
    if pinned not in (None, stated):
        raise PeerIdentityChanged(
            f"the code states {short(stated)} for {address}, and {short(pinned or b'')} is pinned"
        )


def _expired(invitation: Invitation) -> InviteExpired:
    """Return the error of a code that has expired by the clock here, which may be wrong."""
    end = datetime.fromtimestamp(invitation.expire_time_ms / 1000, UTC)
    time_ = end.isoformat(timespec="seconds")
    words = f"by the clock of this machine, the code expired at {time_}"
    return with_step(
        InviteExpired(words),
        "If that time is still to come, set the clock of this machine. Else ask the inviter for"
        " another: a code is valid for 24 hours.",
    )


async def check_folder(store: EntryStore, invitation: Invitation, hub: str | None) -> None:
    """Refuse a link that would send the code's hub what only other hubs have, or nobody.

    What was never sent may go to the hub of the code if the folder was linked to it before, at
    the code's address or at `hub`, the address in use (DECISIONS D579). Raises FolderOfAnotherHub.
    """

    async def has_acks(conversation: ConversationId, peer: PublicKey | None) -> bool:
        positions, _ = await store.load_acks(conversation, peer)
        return bool(positions)

    key, addresses = invitation.hub_key, {invitation.hub_address, hub or ""}
    held = {one.conversation for one in await store.conversations()} - {invitation.conversation}
    sent = {one for one in held if await has_acks(one, key)}
    is_known = bool(sent) or key in [await pinned_key(store, one) for one in addresses]
    for one in sorted(held - sent):
        if not is_known or await has_acks(one, None):
            raise FolderOfAnotherHub(
                f"this folder holds {short(one)}, which the hub of the code does not have;"
                f" joining here would send it to {invitation.hub_address}"
            )


async def has_joined(store: EntryStore, invitation: Invitation, newcomer: PublicKey) -> bool:
    """Say whether a key is a member by what is stored here."""
    loaded = await store.load(invitation.conversation)
    if not loaded:
        return False
    return (await restored(invitation.conversation, loaded)).is_member(newcomer)


async def require_link(replica: Replica, timeout_s: float) -> None:
    """Wait for the link to the hub. Raises the reason why there is none."""
    replica.calls()  # raises without a hub
    await replica.wait_for(lambda: replica.hub.is_tried, timeout_s)
    if not replica.hub.is_linked:
        raise replica.hub.last_error or HubUnreachable()


async def await_grant(
    replica: Replica,
    invitation: Invitation,
    *,
    timeout_s: float | None = None,
    report: Callable[[AntiphonError], None] = lambda _error: None,
) -> None:
    """Leave the proof at the hub, and wait until the inviter's replica has answered it.

    `report` gets JoinPending, and the reason why the hub can't be asked, whenever this changes.
    Raises the inviter's refusal, PeerIdentityChanged where the hub has another key than the code
    states, InviteExpired unless this key has joined before, ReplicaClosed, and after `timeout_s`
    seconds the last reason reported.
    """
    end = time.monotonic() + timeout_s if timeout_s is not None else None
    said, pause_s = "", POLL_FIRST_S
    while True:
        pending = await _ask(replica, invitation)
        if pending is None:
            return
        if rpc.now_ms() >= invitation.expire_time_ms:
            if await has_joined(replica.store, invitation, replica.public):
                return
            raise _expired(invitation)
        if end is not None and time.monotonic() >= end:
            raise pending
        if pending.reason != said:
            said = pending.reason
            report(pending)
        left_s = end - time.monotonic() if end is not None else pause_s
        await replica.wait_for(lambda: False, max(0.0, min(pause_s, left_s)))
        pause_s = min(1.5 * pause_s, POLL_MAX_S)


async def _ask(replica: Replica, invitation: Invitation) -> AntiphonError | None:
    """Leave the proof; return why there is no answer yet, or None if the role is granted."""
    try:
        proved = replica.hub.key if replica.hub.is_linked else None
        if proved is None:  # the calls may reach it before the link does
            proved, _ = await replica.calls().authenticate()
        if proved != invitation.hub_key:
            stated = short(invitation.hub_key)
            raise PeerIdentityChanged(f"the code is for a hub with the key {stated}, not this one")
        verdict = await deposit(replica.calls(), invitation, replica.public)
        await record_join(replica, invitation, is_pending=not is_answer(verdict))
        check_verdict(verdict)
    except ReplicaClosed:
        raise
    except (Unavailable, StoreError) as pending:  # JoinPending too; a store, mostly the hub's
        return pending
    return None


async def deposit(calls: HubCalls, invitation: Invitation, newcomer: PublicKey) -> int:
    """Leave the proof of `newcomer` at the hub; return the inviter's answer so far."""
    request = pb.DepositRequest(mailbox=invitation.mailbox, proof=invitation.proof(newcomer))
    response = await calls.unary(InvitationServiceStub, "Deposit", request)
    return int(response.verdict)


# --- the hub of a folder ----------------------------------------------------------------


def save_hub(folder: Path, address: str) -> None:
    """Make a hub the default of a replica's folder; whatever ends this leaves a whole file."""
    with typed_errors(), replacing(folder / HUB_FILE) as file:
        file.write(f"{address}\n".encode())


def saved_hub(folder: Path) -> str | None:
    """Return the default hub of a replica's folder, if it has one. Raises ArgumentInvalid."""
    path = folder / HUB_FILE
    with typed_errors():
        if not path.is_file():
            return None
        text = path.read_bytes().decode(errors="replace").strip()
    if not is_address(text):
        raise ArgumentInvalid(f"{path} holds no host:port; write the hub's address there")
    return text
