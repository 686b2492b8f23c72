"""InvitationService over grpc.aio: the hub's mailboxes, kept in its store (spec/09-trust §5)."""

import structlog

from antiphon.v1 import invitation_pb2 as pb
from replica import limits
from replica.ids import ID_BYTES, ConversationId, PublicKey
from replica.io import Store, rpc
from replica.refusals import ArgumentInvalid, CreateForbidden, ValueDamaged
from syncd.bounds import SHARDS, Mailboxes
from syncd.io.driver import HubDriver
from syncd.io.gate import Gate
from syncd.io.throttle import CALL_BYTES

log = structlog.get_logger()

_NO_CONVERSATION = ConversationId(bytes(ID_BYTES))
"""No conversation has this id, so the calls are paid for as a stranger's."""


class InvitationService:
    """The calls of InvitationService."""

    def __init__(self, driver: HubDriver, gate: Gate) -> None:
        """Serve mailboxes to callers that `gate` admits; `load` comes before the first call."""
        self._driver = driver
        self._gate = gate
        self._boxes = Mailboxes()

    async def load(self) -> None:
        """Read the stored mailboxes; a damaged part counts as empty."""
        shards = await self._store.get_metas([_key(index) for index in range(SHARDS)])
        for index, stored in enumerate(shards):
            if isinstance(stored, ValueDamaged):
                log.warning("mailboxes damaged", detail=stored.detail)
                continue
            self._boxes.load(index, stored or b"", rpc.now_ms())

    @property
    def _store(self) -> Store:
        return self._driver.store

    def handlers(self) -> rpc.Handlers:
        """Return the byte-level handlers, by method."""
        refused, counted = self._gate.refuse, self._gate.counted
        return {
            "OpenMailbox": rpc.unary(pb.OpenMailboxRequest, self.open, refused, counted),
            "Deposit": rpc.unary(pb.DepositRequest, self.deposit, refused, counted),
            "Collect": rpc.unary(pb.CollectRequest, self.collect, refused, counted),
            "Answer": rpc.unary(pb.AnswerRequest, self.answer, refused, counted),
            "CloseMailbox": rpc.unary(pb.CloseMailboxRequest, self.close, refused, counted),
        }

    async def open(
        self, request: pb.OpenMailboxRequest, context: rpc.Context
    ) -> pb.OpenMailboxResponse:
        """Open a mailbox, for keys that may create conversations here."""
        peer = self._caller(context)
        if not self._driver.hub.policy.may_create(peer):
            raise CreateForbidden
        changed = self._boxes.open(peer, request.mailbox, request.expire_time_ms, rpc.now_ms())
        await self._save(peer, *changed)
        return pb.OpenMailboxResponse()

    async def deposit(self, request: pb.DepositRequest, context: rpc.Context) -> pb.DepositResponse:
        """Leave a proof; whether it was kept is not told."""
        peer = self._caller(context)
        # Saved in any case, so that a kept proof takes no longer than a dropped one.
        verdict = self._boxes.deposit(request.mailbox, peer, request.proof, rpc.now_ms())
        await self._save(peer, self._boxes.shard_of(request.mailbox))
        return pb.DepositResponse(verdict=verdict)  # type: ignore[arg-type]  # numbers are open

    async def collect(self, request: pb.CollectRequest, context: rpc.Context) -> pb.CollectResponse:
        """Return the proofs in the caller's mailboxes."""
        if len(request.mailboxes) > limits.MAILBOXES_PER_KEY_MAX:
            raise ArgumentInvalid(f"at most {limits.MAILBOXES_PER_KEY_MAX} mailboxes at a time")
        peer = self._caller(context)
        response = pb.CollectResponse()
        for name in request.mailboxes:
            box = self._boxes.of(peer, name, rpc.now_ms())
            if box is None:
                response.absent.append(name)
                continue
            for key, held in box.deposits.items():
                response.proofs.add(
                    mailbox=name,
                    newcomer=key,
                    proof=held.proof,
                    verdict=held.verdict,
                )
        return response

    async def answer(self, request: pb.AnswerRequest, context: rpc.Context) -> pb.AnswerResponse:
        """Record the inviter's answer to a proof."""
        peer = self._caller(context)
        newcomer = PublicKey(request.newcomer)
        self._boxes.answer(peer, request.mailbox, newcomer, request.verdict, rpc.now_ms())
        await self._save(peer, self._boxes.shard_of(request.mailbox))
        return pb.AnswerResponse()

    async def close(
        self, request: pb.CloseMailboxRequest, context: rpc.Context
    ) -> pb.CloseMailboxResponse:
        """Remove a mailbox of the caller."""
        peer = self._caller(context)
        shard = self._boxes.shard_of(request.mailbox)
        self._boxes.close(peer, request.mailbox, rpc.now_ms())
        await self._save(peer, shard)
        return pb.CloseMailboxResponse()

    def _caller(self, context: rpc.Context) -> PublicKey:
        """Return the caller's key. Raises Unauthenticated, RateLimited."""
        peer = self._gate.key_of(context)
        self._driver.throttle.check(peer, _NO_CONVERSATION)
        self._driver.throttle.charge(peer, _NO_CONVERSATION, sent_bytes=CALL_BYTES)
        return peer

    async def _save(self, peer: PublicKey, *shards: int) -> None:
        for index in shards:
            data = self._boxes.shard(index)
            self._driver.throttle.charge(peer, _NO_CONVERSATION, sent_bytes=len(data))
            await self._store.put_meta(_key(index), data)


def _key(index: int) -> str:
    return f"mailboxes {index:x}"
