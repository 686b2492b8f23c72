"""Inviting over a hub's mailboxes (spec/09-trust §5, DECISIONS D277).

The inviter's replica records each invitation in its store. It records the key
that redeems one before it writes the grant, so that after a crash at any point
the grant goes to this key or to none.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from antiphon.v1 import invitation_pb2 as pb
from antiphon.v1.invitation_pb2_grpc import InvitationServiceStub
from replica.conversation import (
    INVITATION_SECRET_BYTES,
    Conversation,
    Invitation,
    Issued,
    JoinVerdict,
    check_name,
    check_public_address,
    check_role,
    has_unknown_grant,
    judge,
    judge_by_record,
)
from replica.errors import AntiphonError, with_step
from replica.ids import ConversationId, PublicKey
from replica.io.conversations import petnames
from replica.io.conversations.begin import grant
from replica.io.conversations.issued_invitations import (
    ISSUED,
    current_invitation,
    issued_invitations,
    save,
    update,
)
from replica.io.driver import Replica
from replica.io.serving import rpc
from replica.limits import INVITATION_LIFETIME_S, MAILBOXES_PER_KEY_MAX
from replica.log import Grant, Role
from replica.refusals import ArgumentInvalid, HubUnreachable, NotAllowed, QuotaExceeded

POLL_S = 2.0
"""Interval between two looks at the hub for newcomers' proofs."""
FINISH_S = 2.0
"""Longest time that the look in progress is waited for at the end."""
SYNC_TIMEOUT_S = 10.0


class InvitationsExceeded(QuotaExceeded):
    """64 invitations of this key from the last 24 hours are open, or were used."""

    next_step = (
        "Revoke one that nobody needs any more, `uninvite` in a program or `antiphon invitations"
        " --revoke NAME`, or wait: each one ends after 24 hours."
    )


@dataclass(frozen=True, slots=True)
class Joined:
    """A newcomer who got its role, or who waits for it."""

    issued: Issued
    key: PublicKey
    verdict: JoinVerdict


# --- inviting -----------------------------------------------------------------------


async def invite(
    replica: Replica,
    conversation: ConversationId,
    name: str,
    *,
    role: Role = Role.WRITER,
    address: str | None = None,
    timeout_s: float | None = None,
) -> Issued:
    """Record a new invitation for a newcomer called `name`, and open its mailbox at the hub.

    `address` (host:port) is the hub's for the newcomer, where it is not the one used here. The
    hub has `timeout_s` seconds to answer, if given.
    Raises ArgumentInvalid, HubUnreachable, NotAllowed for anyone but an owner,
    InvitationsExceeded, and the hub's refusal.
    """
    check_name(name)
    check_role(role)
    calls = replica.calls()
    check_public_address(address or calls.address)
    held = await replica.load(conversation)
    _require_owner(held, replica.public)
    hub_key, now_ms = replica.hub.key, rpc.now_ms()
    if hub_key is None:
        raise replica.hub.last_error or HubUnreachable()
    records = await issued_invitations(replica.store)
    if sum(one.is_valid(now_ms) for one in records) >= MAILBOXES_PER_KEY_MAX:
        raise InvitationsExceeded
    made = Invitation(
        address or calls.address,
        hub_key,
        conversation,
        replica.public,
        role,
        now_ms + INVITATION_LIFETIME_S * 1000,
        os.urandom(INVITATION_SECRET_BYTES),
    )
    request = pb.OpenMailboxRequest(mailbox=made.mailbox, expire_time_ms=made.expire_time_ms)
    try:
        await calls.unary(InvitationServiceStub, "OpenMailbox", request, timeout_s)
    except ArgumentInvalid as error:
        # No argument of the caller is in the request: the hub refuses the time.
        with_step(error, "Compare this machine's clock with the hub's.")
        raise
    async with replica.processes.changing(ISSUED):
        # The time is taken here: no grant of this store is being written now.
        issued = Issued(made, name, rpc.now_ms())
        records = await issued_invitations(replica.store)
        await save(replica.store, [*records, issued], now_ms)
    return issued


async def revoke_invitation(
    replica: Replica, issued: Issued, timeout_s: float | None = None
) -> None:
    """Revoke an invitation here, then remove its mailbox. Raises ArgumentInvalid if redeemed.

    The hub has `timeout_s` seconds to remove it, if given.
    """
    async with replica.processes.changing(ISSUED):
        issued = await current_invitation(replica.store, issued)
        if issued.claimed_by is not None:
            raise ArgumentInvalid(f"{issued.name} has joined; remove the member instead")
        await update(replica.store, replace(issued, is_revoked=True))
    # Without the hub it is answered as revoked until it expires.
    request = pb.CloseMailboxRequest(mailbox=issued.invitation.mailbox)
    with suppress(AntiphonError):
        await replica.calls().unary(InvitationServiceStub, "CloseMailbox", request, timeout_s)


async def void_invitations(replica: Replica, conversation: ConversationId) -> None:
    """Revoke all open invitations of a conversation that was deleted at the hub.

    Their mailboxes stay, so that whoever tries a code is told; also one whose grant was written
    and not taken any more.
    """
    async with replica.processes.changing(ISSUED):
        now_ms = rpc.now_ms()
        for one in await issued_invitations(replica.store):
            if one.invitation.conversation == conversation and one.is_open(now_ms):
                await update(replica.store, replace(one, is_revoked=True))


def _require_owner(held: Conversation, key: PublicKey) -> None:
    if not held.log.membership.is_owner(key):
        raise NotAllowed("only an owner can invite")


async def redeem(replica: Replica) -> list[Joined]:
    """Answer the proofs in the mailboxes of this replica once, and grant what they ask for.

    PENDING in the result is a newcomer who waits until replica and hub are in sync. One that
    can't be answered does not hold up the others. Raises the hub's refusals and StoreError.
    """
    records = {one.invitation.mailbox: one for one in await _open_here(replica)}
    if not records:
        return []
    request = pb.CollectRequest(mailboxes=records)
    response = await replica.calls().unary(InvitationServiceStub, "Collect", request)
    for mailbox in filter(records.__contains__, response.absent):
        # Closed or redeemed elsewhere, or the hub was restored: it is not opened again.
        await _void_unless_claimed(replica, records[mailbox])
    joined: list[Joined] = []
    failures: list[AntiphonError] = []
    for proof in response.proofs:
        issued = records.get(proof.mailbox)
        if issued is None:
            continue  # the hub names a mailbox that it was not asked about
        if proof.verdict == JoinVerdict.GRANTED:
            await _void_unless_claimed(replica, issued)  # by this store, or it is a backup
        elif proof.verdict == JoinVerdict.PENDING:
            try:
                done = await _answer(replica, issued, PublicKey(proof.newcomer), proof.proof)
            except AntiphonError as error:
                failures.append(error)
            else:
                joined += [done] if done is not None else []
    if failures and not joined:
        raise failures[0]  # the others are tried again in any case
    return joined


async def _void_unless_claimed(replica: Replica, issued: Issued) -> None:
    async with replica.processes.changing(ISSUED):
        issued = await current_invitation(replica.store, issued)
        if issued.claimed_by is None and not issued.is_revoked:
            await update(replica.store, replace(issued, is_revoked=True))


async def _open_here(replica: Replica) -> list[Issued]:
    """Return the open invitations of this key to the hub that the replica is linked to.

    Of the revoked ones, whose mailboxes are closed if the hub was there, as many as a call has
    room for.
    """
    now_ms, pair = rpc.now_ms(), (replica.public, replica.hub.key)
    records = await issued_invitations(replica.store)
    ours = [one for one in records if (one.invitation.inviter, one.invitation.hub_key) == pair]
    asked = sorted((one for one in ours if one.is_open(now_ms)), key=lambda one: one.is_revoked)
    return asked[:MAILBOXES_PER_KEY_MAX]


async def _answer(
    replica: Replica, issued: Issued, newcomer: PublicKey, proof: bytes
) -> Joined | None:
    """Judge one proof; claim, grant, sync, then tell the newcomer."""
    verdict = judge_by_record(issued, newcomer, proof, rpc.now_ms())
    if verdict is None:
        return None
    if verdict not in (JoinVerdict.PENDING, JoinVerdict.GRANTED):  # the log is not needed
        return await _tell(replica, issued, newcomer, verdict)
    conversation = issued.invitation.conversation
    held = await replica.load(conversation)
    await replica.follow(conversation)
    is_synced = await replica.wait_synced(conversation, SYNC_TIMEOUT_S)
    if not is_synced and replica.hub.ending(conversation) is None:
        return Joined(issued, newcomer, JoinVerdict.PENDING)
    async with replica.processes.changing(ISSUED):
        issued, verdict = await _claim(replica, held, issued, newcomer, proof)
    if verdict is None:
        return None
    if verdict is JoinVerdict.GRANTED:
        await petnames.set_name(replica, newcomer, issued.name)
        role = issued.invitation.role
        if role not in held.log.membership.roles.get(newcomer, ()):
            await grant(replica, conversation, Grant(newcomer, role))
        if not await replica.wait_synced(conversation, SYNC_TIMEOUT_S):
            return Joined(issued, newcomer, JoinVerdict.PENDING)
    return await _tell(replica, issued, newcomer, verdict)


async def _tell(
    replica: Replica, issued: Issued, newcomer: PublicKey, verdict: JoinVerdict
) -> Joined:
    """Leave the answer to a proof at the hub."""
    request = pb.AnswerRequest(
        mailbox=issued.invitation.mailbox, newcomer=newcomer, verdict=int(verdict)  # type: ignore[arg-type]
    )  # fmt: skip
    await replica.calls().unary(InvitationServiceStub, "Answer", request)
    return Joined(issued, newcomer, verdict)


async def _claim(
    replica: Replica, held: Conversation, issued: Issued, newcomer: PublicKey, proof: bytes
) -> tuple[Issued, JoinVerdict | None]:
    """Judge a proof by the records as they are now; a granted one is recorded durably.

    It is void where nobody can be let in any more: this key is no owner, or the hub takes nothing
    ever again, which is all that a removed key is told.
    """
    membership = held.log.membership
    issued = await current_invitation(replica.store, issued)
    has_ended = replica.hub.ending(held.id) is not None or not membership.is_owner(replica.public)
    is_restored = has_unknown_grant(issued, held.log, replica.wrote)
    if issued.claimed_by is None and (has_ended or is_restored):
        issued = replace(issued, is_revoked=True)
        await update(replica.store, issued)
    verdict = judge(issued, newcomer, proof, membership, rpc.now_ms())
    if verdict is JoinVerdict.GRANTED:
        issued = replace(issued, claimed_by=newcomer)
        await update(replica.store, issued)
    return issued, verdict


class HubClaim:
    """The claim of one process to ask a hub for newcomers, for all processes on its store."""

    def __init__(self, replica: Replica) -> None:
        """Claim nothing yet."""
        self._replica = replica
        self._name: bytes | None = None

    def is_held(self) -> bool:
        """Say whether this process asks now: it is linked, and no other process asks that hub."""
        hub = self._replica.hub
        wanted = b"newcomers " + hub.key if hub.is_linked and hub.key is not None else None
        if self._name != wanted:
            self.release()
        if self._name is None and wanted is not None and self._replica.processes.claim(wanted):
            self._name = wanted
        return self._name is not None

    def release(self) -> None:
        """Leave the hub to another process."""
        if self._name is not None:
            self._replica.processes.release(self._name)
            self._name = None


class Redeeming:
    """Answers newcomers while a replica is open; ends a round in progress before it stops.

    Of the processes on a store that are linked to one hub, one asks for newcomers at a time.
    """

    def __init__(self, replica: Replica, report: Callable[[Joined], None]) -> None:
        """Tell `report` each newcomer once per verdict."""
        self._replica = replica
        self._report = report
        self._reported: set[tuple[PublicKey, JoinVerdict]] = set()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; invitations that are recorded later, by any process, are answered too."""
        self._task = asyncio.create_task(self._run(), name="invitations")

    async def stop(self) -> None:
        """Finish the round in progress, for a bounded time; there is one if there was a link."""
        self._stopping.set()
        if self._task is None:
            return
        if self._replica.hub.is_linked:
            await asyncio.wait({self._task}, timeout=FINISH_S)
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        claim, is_last = HubClaim(self._replica), False
        has_asked = False
        try:
            while not is_last:
                await self._replica.wait_for(lambda: self._replica.hub.is_tried, POLL_S)
                is_last = self._stopping.is_set()
                with suppress(AntiphonError):  # it is tried again, and the link reports its errors
                    if claim.is_held():
                        has_asked = True
                        await self._round()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), POLL_S)
                    is_last |= has_asked  # else the link came after the look: it asks once more
        finally:
            claim.release()

    async def _round(self) -> None:
        for joined in await redeem(self._replica):
            seen = (joined.key, joined.verdict)
            if seen not in self._reported:
                self._reported.add(seen)
                self._report(joined)
