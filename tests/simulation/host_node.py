"""A scripted model host: seals what may be sealed, and answers with made-up tokens."""

from functools import partial

from replica.commits import Conversations
from replica.conversation.drafts import Draft, extend_digest, sign_draft, start_digest
from replica.conversation.sealing import open_requests, sealable
from replica.ids import ConversationId, Digest, EntryId
from replica.link.messages import HostInfo
from replica.log.body import FinishReason, Generation, Role, Seal, Text
from replica.log.entry import Entry
from tests.simulation.replica_node import ReplicaNode

PROFILE = Digest(b"profile".ljust(32, b"."))
TOKENS_PER_FRAME = 3


class HostNode(ReplicaNode):
    """Works on whatever the log says is open; nothing else is remembered over a crash."""

    role = "host"

    def restore(self) -> None:
        self.running: set[EntryId] = set()
        self.tried: set[EntryId] = set()
        super().restore()

    def undo(self, lost: Conversations) -> None:
        """Take it that what was begun may have been lost; the log says what is open."""
        self.running.clear()
        self.tried.clear()
        super().undo(lost)

    def host_info(self) -> HostInfo | None:
        return HostInfo(self.public, "", ())

    def entries_admitted(self, conversation: ConversationId, entries: tuple[Entry, ...]) -> None:
        self.later(0.01, partial(self.work, conversation))

    def synchronized(self, conversation: ConversationId) -> None:
        self.later(0.0, partial(self.work, conversation))

    def work(self, conversation: ConversationId) -> None:
        """Seal and answer open requests, once the hub has shown us our own lanes."""
        held = self.shelf.get(conversation)
        if held is None or conversation not in self.confirmed or not held.is_member(self.public):
            return
        if Role.HOST not in held.log.membership.roles.get(self.public, ()):
            return
        for request in open_requests(held, self.public):
            if request not in self.running:
                self._take_up(conversation, request)

    def _take_up(self, conversation: ConversationId, request: EntryId) -> None:
        held = self.shelf[conversation]
        seal_id = held.order.seal_of.get(request)
        if seal_id is None:
            seal_id = self._seal(conversation, request)
        if seal_id is None:
            return
        self.running.add(request)
        run = self.random.getrandbits(32)
        count = self.random.choice((1, 5, 8))
        token_ids = tuple(self.random.randrange(50_000) for _ in range(count))
        cancelled = held.order.is_cancelled(request)
        delay_s = self.random.choice((0.01, 0.5, 2.0))
        streams = not cancelled and self.random.random() < 0.6
        self.oracle.draft_begun(request, run, token_ids)
        answer = partial(self._answer, conversation, request, seal_id, run, token_ids, cancelled)
        if streams:
            digest = start_digest(request, run)
            stream = partial(
                self._stream, conversation, request, run, token_ids, 0, digest, delay_s, answer
            )
            self.later(delay_s, stream)
        else:
            self.later(delay_s, answer)

    def _seal(self, conversation: ConversationId, request: EntryId) -> EntryId | None:
        held = self.shelf[conversation]
        ready = sealable(held, request) if request not in self.tried else None
        if ready is None:
            return None
        self.tried.add(request)
        basis = ready.parent.id if ready.parent is not None else None
        body = Seal(
            request,
            basis,
            ready.entries,
            PROFILE,
            ready.context_digest,
            Digest(b"render".ljust(32, b".")),
            tuple(1 for _ in ready.entries),
            ready.membership_heads,
        )
        seal = self.write(conversation, body, (request,), basis=basis)
        self.oracle.sealed(seal, held)
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
        held = self.shelf.get(conversation)
        node = held.order.nodes.get(seal_id) if held is not None else None
        self.running.discard(request)
        if held is None or node is None or node.generation is not None:
            return  # the seal was displaced, or answered by what arrived meanwhile
        if not held.is_member(self.public):
            return
        token_ids = () if cancelled else token_ids
        body = Generation(
            token_ids,
            (Text(visible(token_ids).decode()),),
            len(visible(token_ids)),
            FinishReason.CANCELLED if cancelled else FinishReason.STOP,
            draft_digest=extend_digest(start_digest(request, run), token_ids),
            run=run,
        )
        self.write(conversation, body, (seal_id,), basis=seal_id)
        self.work(conversation)


def visible(token_ids: tuple[int, ...]) -> bytes:
    """Spell made-up tokens."""
    return "".join(f"t{i} " for i in token_ids).encode()
