"""One conversation on one link: what was sent, what is acked, what is believed (spec/04-link §4).

Pure, and private to link.py: a Channel never sends by itself. It queues ids;
the link turns them into frames as credit allows.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from replica.conversation import Conversation
from replica.effects import Draft, SyncState
from replica.ids import ConversationId, EntryId, Position

IDS_HELD_MAX = 1 << 20
"""Ids of a peer kept while its chunks arrive, 32 MiB."""


@dataclass(slots=True)
class Channel:
    """Peer state of one conversation, kept apart from the conversation itself."""

    id: ConversationId
    state: SyncState = SyncState.OPENING
    is_open: bool = False
    """The peer takes live entries: it has shown its heads or an equal digest."""
    with_drafts: bool = False
    seedings: int = 0
    """How often the log was sent because the peer did not know the conversation."""
    recheck_at: float | None = None
    asked_with_heads: bool = False
    """Our last Open showed our heads, so the peer sends what we lack without being asked."""
    check_at: float | None = None
    """When to compare digests again, because entries were on their way at the last beat."""
    busy_checks: int = 0
    """Comparisons in a row that entries on their way may have spoilt."""
    outgoing: deque[EntryId] = field(default_factory=deque)
    queued: set[EntryId] = field(default_factory=set)
    unacked: set[EntryId] = field(default_factory=set)
    refused: set[EntryId] = field(default_factory=set)
    """What the hub will not have: not acked, and not sent again on this link."""
    in_flight: set[EntryId] = field(default_factory=set)
    """Sent by a client and not yet acked: sent again only after a re-check."""
    wanted: set[EntryId] = field(default_factory=set)
    peer_ids: set[EntryId] = field(default_factory=set)
    received_since_check: bool = False
    drafts_sent: dict[EntryId, tuple[int, int, int]] = field(default_factory=dict)
    """Per request: run, tokens and frames already sent to this reader."""
    drafts_due: set[EntryId] = field(default_factory=set)

    def refuse(self, entry_id: EntryId) -> None:
        """Take one of ours as refused for good."""
        if entry_id in self.unacked:
            self.unacked.discard(entry_id)
            self.refused.add(entry_id)

    def queue(self, ids: Iterable[EntryId]) -> None:
        """Queue entries for sending, each once."""
        for entry_id in ids:
            if not any(entry_id in known for known in (self.queued, self.in_flight, self.refused)):
                self.queued.add(entry_id)
                self.outgoing.append(entry_id)

    def take(self) -> EntryId:
        """Take the next queued id."""
        entry_id = self.outgoing.popleft()
        self.queued.discard(entry_id)
        return entry_id

    def mark_acked(self, conversation: Conversation, ids: Iterable[EntryId]) -> list[Position]:
        """Take ids the peer holds out of `unacked`, with their lane ancestors; return heads."""
        log = conversation.log
        acked: list[Position] = []
        held = (log.entries[i] for i in ids if i in log.entries)
        for entry in sorted(held, key=lambda e: e.order_key, reverse=True):
            at: EntryId | None = entry.id
            if at not in self.unacked:
                at = entry.header.prev  # the peer's own entry acks what it follows in its lane
            if at in self.unacked:
                acked.append(log.position(at))
            while at is not None and at in self.unacked:
                self.unacked.discard(at)
                self.in_flight.discard(at)
                at = log.entries[at].header.prev
        return acked

    def mark_all_acked(self, conversation: Conversation) -> list[Position]:
        """Take the peer's log as equal to ours; what neither covers any more is owed to nobody."""
        acked = self.mark_acked(conversation, (head.id for head in conversation.log.heads()))
        self.unacked.clear()
        self.in_flight.clear()
        return acked

    def settle(self) -> bool:
        """Become SYNCHRONIZED if nothing is owed either way; say whether it happened."""
        quiet = not self.unacked and not self.wanted
        if quiet and self.state in (SyncState.RECONCILING, SyncState.DESYNCHRONIZED):
            self.state = SyncState.SYNCHRONIZED
            return True
        return False

    def collect_ids(self, ids: Iterable[EntryId], *, more: bool) -> set[EntryId] | None:
        """Collect a peer's id chunks; return them all with the last, None before."""
        self.peer_ids.update(ids)
        if len(self.peer_ids) > IDS_HELD_MAX:
            self.peer_ids = set()
            return None
        if more:
            return None
        complete, self.peer_ids = self.peer_ids, set()
        return complete

    def due_drafts(self, conversation: Conversation) -> list[Draft]:
        """Return draft frames this reader lacks, and note them as sent."""
        due: list[Draft] = []
        for request in sorted(self.drafts_due):
            stream = conversation.drafts.get(request)
            if stream is None:
                self.drafts_sent.pop(request, None)
                continue
            run, tokens, size = self.drafts_sent.get(request, (stream.run, 0, 0))
            if run != stream.run:
                tokens = size = 0
            # A frame without tokens is progress or held-back text: its bytes tell it apart.
            due += [f for f in stream.frames if f.token_offset >= tokens and f.byte_offset >= size]
            self.drafts_sent[request] = (stream.run, stream.token_count, stream.byte_count)
        self.drafts_due.clear()
        return due
