"""A scripted model host: follows its schedule, and answers with invented tokens."""

from functools import partial

from model_host.scheduling import Begin, Bounds, Decision, GatherHeads, Refuse, Resume, Schedule
from replica.commits import Conversations
from replica.conversation.drafts import Draft, extend_digest, sign_draft, start_digest
from replica.conversation.next_seal import Sealable
from replica.ids import ConversationId, Digest, EntryId
from replica.link.events import SyncState
from replica.link.messages import HostInfo
from replica.log.body import FinishReason, Generation, Join, Seal, Text
from replica.log.entry import Entry
from tests.simulation.replica_node import ReplicaNode

PROFILE = Digest(b"profile".ljust(32, b"."))
TOKENS_PER_FRAME = 3
BOUNDS = Bounds(running_max=4, running_per_owner_max=3, waiting_per_owner_max=50)


class HostNode(ReplicaNode):
    """Answers the open requests of the log; keeps no other state over a crash."""

    role = "host"

    def restore(self) -> None:
        self.schedule = Schedule(self.public, BOUNDS)
        self.oracle.hosts.started(self.name)
        super().restore()

    def undo(self, lost: Conversations) -> None:
        """Forget the runs in progress, whose entries may be lost; the log has the open requests."""
        self.schedule = Schedule(self.public, BOUNDS)
        self.oracle.hosts.undone(self.name, lost)
        super().undo(lost)

    def host_info(self) -> HostInfo | None:
        return HostInfo(self.public, "", ())

    def entries_admitted(self, conversation: ConversationId, entries: tuple[Entry, ...]) -> None:
        self.later(0.01, self.work)

    def synchronized(self, conversation: ConversationId) -> None:
        self.oracle.hosts.synchronized(self.name, conversation)
        self.later(0.0, self.work)

    def work(self) -> None:
        """Perform all decisions that are due."""
        count = 0
        while (decision := self._next_decision()) is not None:
            self._act(decision)
            count += 1
            self.oracle.hosts.decided(self.name, count)

    def _next_decision(self) -> Decision | None:
        return self.schedule.start_next(
            self.shelf.values(),
            is_synchronized=lambda c: self.states.get(c) is SyncState.SYNCHRONIZED,
            now_ms=self.writer.time_ms,
        )

    def _act(self, decision: Decision) -> None:
        conversation, request = decision.conversation, decision.request
        match decision:
            case Begin(_, ready):
                seal_id = self._seal(conversation, ready)
                if seal_id is not None:
                    self._run(conversation, request, seal_id)
                else:
                    detail = "its seal does not count"
                    self._answer_refused(
                        Refuse(conversation, request, FinishReason.REFUSED, detail)
                    )
            case Resume():
                seal_id = self.shelf[conversation].order.seal_of[request]
                self._run(conversation, request, seal_id)
            case Refuse():
                self._answer_refused(decision)
            case GatherHeads(_, _, heads):
                self.writer.write(conversation, Join(), heads)
                self.schedule.end(request)

    def _answer_refused(self, refusal: Refuse) -> None:
        basis = self.shelf[refusal.conversation].log.entries[refusal.request].header.basis
        self.writer.write(refusal.conversation, refusal.body, (refusal.request,), basis=basis)
        self.schedule.end(refusal.request)

    def _run(self, conversation: ConversationId, request: EntryId, seal_id: EntryId) -> None:
        run = self.random.getrandbits(32)
        count = self.random.choice((1, 5, 8))
        token_ids = tuple(self.random.randrange(50_000) for _ in range(count))
        cancelled = self.shelf[conversation].order.is_cancelled(request)
        delay_s = self.random.choice((0.01, 0.5, 2.0))
        streams = not cancelled and self.random.random() < 0.6
        self.oracle.hosts.began(self.name, request, seal_id)
        self.oracle.drafts.began(
            self.name, conversation, request, run, token_ids, self.clock.now, streams=streams
        )
        answer = partial(self._answer, conversation, request, seal_id, run, token_ids, cancelled)
        if streams:
            digest = start_digest(request, run)
            stream = partial(
                self._stream, conversation, request, run, token_ids, 0, digest, delay_s, answer
            )
            self.later(delay_s, stream)
        else:
            self.later(delay_s, answer)

    def _seal(self, conversation: ConversationId, ready: Sealable) -> EntryId | None:
        held = self.shelf[conversation]
        basis = ready.parent.id if ready.parent is not None else None
        body = Seal(
            ready.request,
            basis,
            ready.entries,
            PROFILE,
            ready.context_digest,
            Digest(b"render".ljust(32, b".")),
            tuple(1 for _ in ready.entries),
            ready.membership_heads,
        )
        seal = self.writer.write(conversation, body, (ready.request,), basis=basis)
        self.oracle.hosts.sealed(self.name, seal, held)
        return seal.id if seal.id in held.order.nodes else None

    def _stream(
        self,
        conversation: ConversationId,
        request: EntryId,
        run: int,
        token_ids: tuple[int, ...],
        at: int,
        digest: Digest,
        delay_s: float,
        answer: "partial[None]",
    ) -> None:
        piece = token_ids[at : at + TOKENS_PER_FRAME]
        if not piece:
            answer()
            return
        digest = extend_digest(digest, piece)
        data = visible(piece)
        offset = len(visible(token_ids[:at]))
        draft = Draft(conversation, request, run, at, piece, offset, data, digest)
        self.do(self.core.send_draft(sign_draft(draft, self.key)))
        following = partial(
            self._stream,
            conversation,
            request,
            run,
            token_ids,
            at + len(piece),
            digest,
            delay_s,
            answer,
        )
        self.later(delay_s / 4, following)

    def _answer(
        self,
        conversation: ConversationId,
        request: EntryId,
        seal_id: EntryId,
        run: int,
        token_ids: tuple[int, ...],
        cancelled: bool,
    ) -> None:
        self.schedule.end(request)
        self.oracle.hosts.ended(self.name, request)
        held = self.shelf.get(conversation)
        node = held.order.nodes.get(seal_id) if held is not None else None
        # Else the seal was displaced, or answered by an entry received meanwhile.
        if held and node and node.generation is None and held.is_member(self.public):
            token_ids = () if cancelled else token_ids
            body = Generation(
                token_ids,
                (Text(visible(token_ids).decode()),),
                len(visible(token_ids)),
                FinishReason.CANCELLED if cancelled else FinishReason.STOP,
                draft_digest=extend_digest(start_digest(request, run), token_ids),
                run=run,
            )
            self.writer.write(conversation, body, (seal_id,), basis=seal_id)
        self.work()


def visible(token_ids: tuple[int, ...]) -> bytes:
    """Return the text of invented tokens."""
    return "".join(f"t{i} " for i in token_ids).encode()
