"""The state of one conversation on one link: queued, sent, acked, refused (spec/04-link §5).

Pure, and private to link.py. A Channel never sends by itself. It queues ids,
and the link turns them into frames as credit allows. Refused entries are
remembered per link (DECISIONS D31).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from replica import limits
from replica.conversation import Conversation, Draft
from replica.ids import ConversationId, EntryId, Position
from replica.link.comparison import Backlog, covered_ids
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAcked, StateChanged, SyncState
from replica.link.messages import Entries, Fault, Ids, Opened
from replica.link.outgoing import Outgoing
from replica.link.sent_opens import SentOpens
from replica.log import Entry

ENTRIES_FRAME_BYTES = 32 * 1024
"""Size at which an Entries frame is cut, well under the frame limit, so drafts are not delayed."""

_CHANNEL_BYTES, _ID_BYTES, _WALK_BYTES = 4_096, 80, 640
"""Memory of a channel, of an id in a set, of the walk over a lane."""


@dataclass(slots=True)
class Channel:
    """Peer state of one conversation, kept apart from the conversation itself."""

    id: ConversationId
    state: SyncState = SyncState.OPENING
    is_open: bool = False
    """The peer accepts new entries, because it has sent its heads or an equal digest."""
    with_drafts: bool = False
    seedings: int = 0
    """Number of times the log was sent because the peer did not know the conversation."""
    recheck_at: float | None = None
    awaited: set[EntryId] | None = None
    """The entries whose acks decide at `recheck_at`; None: heads are compared in any case."""
    opens: SentOpens = field(default_factory=SentOpens)
    lists_due: set[bool] = field(default_factory=set)
    """The lists of all ids that a hub may still send behind the last Open: an answer, or not."""
    check_at: float | None = None
    """Time to compare digests again, because entries were in flight at the last heartbeat."""
    busy_checks: int = 0
    """Number of comparisons in a row that entries in flight made inconclusive."""
    outgoing: Outgoing = field(default_factory=Outgoing)
    unacked: set[EntryId] = field(default_factory=set)
    refused: dict[EntryId, Fault] = field(default_factory=dict)
    """Entries the hub refused, and why: neither acked nor sent again on this link."""
    in_flight: set[EntryId] = field(default_factory=set)
    """Entries sent by a client and not yet acked: sent again only after a re-check."""
    sent: set[EntryId] = field(default_factory=set)
    """Entries sent by a client on this link and not yet acked; no others can be acked."""
    wanted: set[EntryId] = field(default_factory=set)
    peer_ids: set[EntryId] = field(default_factory=set)
    received_since_check: bool = False
    drafts_sent: dict[EntryId, tuple[int, int, int]] = field(default_factory=dict)
    """Per running request: run, tokens and bytes already sent to this reader."""
    drafts_due: set[EntryId] = field(default_factory=set)
    """Requests with frames to send, which are found as they are sent: no frame outlives its run."""
    ids_due: Iterator[Ids] | None = None
    backlog: Backlog | None = None
    """Entries a hub sends before the queued ones, found as they are sent (DECISIONS D200)."""
    answer_due: int | None = None
    """Number of the digest that a hub has still to answer, behind what is queued (LINK-11)."""

    def refuse(self, entry_id: EntryId, fault: Fault) -> None:
        """Mark one of our entries as refused for good."""
        if entry_id in self.unacked:
            self.unacked.discard(entry_id)
            self.refused[entry_id] = fault

    def queue(self, ids: Iterable[EntryId]) -> None:
        """Queue entries for sending, each once."""
        for entry_id in ids:
            if entry_id not in self.in_flight and entry_id not in self.refused:
                self.outgoing.add(entry_id)

    def queue_ids(self, conversation: Conversation, *, answer: bool) -> None:
        """Queue all ids held; they replace the rest of an earlier list."""
        self.ids_due = self._chunks(covered_ids(conversation.log), answer=answer)

    def _chunks(self, ids: Iterator[EntryId], *, answer: bool) -> Iterator[Ids]:
        first = next(ids, None)
        while True:
            more = islice(ids, limits.IDS_PER_FRAME - 1)
            chunk = (first, *more) if first is not None else ()
            first = next(ids, None)
            yield Ids(self.id, chunk, first is not None, answer)
            if first is None:
                return

    def deadlines(self) -> list[float]:
        """Return the times at which to compare again."""
        return [at for at in (self.recheck_at, self.check_at) if at is not None]

    def recheck(self, at: float, awaited: Iterable[EntryId] | None = None) -> None:
        """Schedule a comparison, unless by then the `awaited` entries are acked."""
        self.recheck_at = at
        self.awaited = None if awaited is None else set(awaited)

    def postpone_recheck(self, now: float) -> None:
        """Wait for the acks of newer entries once all awaited ones are acked."""
        if not self.is_overdue(now) or self.awaited is None or self.awaited & self.unacked:
            return
        self.recheck_at = None
        if self.unacked:
            self.recheck(now + limits.RESYNC_S, self.unacked)

    def is_overdue(self, now: float) -> bool:
        """Say whether an unacked entry may have been lost."""
        return self.recheck_at is not None and now >= self.recheck_at

    def is_check_due(self, now: float) -> bool:
        """Say whether a postponed comparison is due."""
        return self.check_at is not None and now >= self.check_at

    @property
    def is_due(self) -> bool:
        """Say whether anything is queued that may be sent: drafts wait until the peer is open."""
        is_walking = self.ids_due is not None or self.backlog is not None
        is_queued = self.outgoing or self.answer_due is not None
        return bool(is_walking or is_queued or (self.drafts_due and self.is_open))

    def next_frame(
        self, conversation: Conversation, *, awaits_acks: bool
    ) -> Ids | Entries | Opened | Draft | None:
        """Return the next frame: ids, entries, a due answer, then drafts; None if all is sent."""
        if self.ids_due is not None:
            if ids := next(self.ids_due, None):
                return ids
            self.ids_due = None
        if entries := self._next_entries(conversation, awaits_acks=awaits_acks):
            return Entries(self.id, entries)
        if self.answer_due is not None:
            number, self.answer_due = self.answer_due, None
            return Opened(self.id, conversation.log.digest, False, None, number)
        # Without its seal, which goes with the entries, a reader can't check a draft.
        return self._next_draft(conversation) if self.is_open else None

    def _next_entries(self, conversation: Conversation, *, awaits_acks: bool) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        if self.backlog is not None:
            entries = self.backlog.take(ENTRIES_FRAME_BYTES)
        size = sum(entry.size_bytes for entry in entries)
        if size < ENTRIES_FRAME_BYTES:
            self.backlog = None
        while self.outgoing and size < ENTRIES_FRAME_BYTES:
            entry = conversation.find(self.outgoing.pop())
            if entry is None:
                continue  # it was pending, and has been dropped since
            if awaits_acks:
                self.in_flight.add(entry.id)
                self.sent.add(entry.id)
            entries.append(entry)
            size += entry.size_bytes
        return tuple(entries)

    def mark_acked(self, conversation: Conversation, ids: Iterable[EntryId]) -> list[Position]:
        """Remove the ids the peer holds and their lane ancestors from `unacked`; return heads."""
        log = conversation.log
        acked: list[Position] = []
        held = (log.entries[i] for i in ids if i in log.entries)
        for entry in sorted(held, key=lambda e: e.order_key, reverse=True):
            at: EntryId | None = entry.id
            if at not in self.unacked:
                at = entry.header.prev  # the peer's own entry acks its predecessor in the lane
            if at in self.unacked:
                acked.append(log.entries[at].position)
            while at is not None and at in self.unacked:
                self.unacked.discard(at)
                self.in_flight.discard(at)
                self.sent.discard(at)
                at = log.entries[at].header.prev
        return acked

    def mark_all_acked(self, conversation: Conversation) -> list[Position]:
        """Treat the peer's log as equal to ours; entries no longer covered need no ack."""
        acked = self.mark_acked(conversation, (head.id for head in conversation.log.heads()))
        self.unacked.clear()
        self.in_flight.clear()
        self.sent.clear()
        return acked

    def deliver_acked(self, acked: list[Position], out: EffectsBuilder) -> None:
        """Deliver the positions that are now known to be durable at the hub."""
        if acked:
            out.deliver.append(EntriesAcked(self.id, tuple(acked)))
        if not self.unacked and self.state is SyncState.SYNCHRONIZED:
            self.recheck_at = None

    def change(self, state: SyncState, out: EffectsBuilder) -> None:
        """Change the state, and deliver the change."""
        if self.state is not state:
            self.state = state
            out.deliver.append(StateChanged(self.id, state))

    def settle(self, out: EffectsBuilder) -> None:
        """Become SYNCHRONIZED if nothing is unacked and nothing wanted.

        A hub that was sent the log has the conversation open for this link only once it
        answers an Open, which follows whatever is acked before (LINK-10).
        """
        is_complete = not (self.unacked or self.wanted or self.seedings)
        if is_complete and self.state in (SyncState.RECONCILING, SyncState.DESYNCHRONIZED):
            self.recheck_at = None
            self.change(SyncState.SYNCHRONIZED, out)

    def collect_ids(
        self, ids: Iterable[EntryId], *, more: bool, beside: int = 0
    ) -> set[EntryId] | None:
        """Collect a peer's id chunks; return all ids with the last chunk, None before.

        All are dropped where they are too many, with those that other channels keep `beside`.
        """
        self.peer_ids.update(ids)
        if len(self.peer_ids) + beside > limits.IDS_HELD_MAX:
            self.peer_ids = set()
            return None
        if more:
            return None
        complete, self.peer_ids = self.peer_ids, set()
        return complete

    def forget_drafts(self) -> None:
        """Send the drafts from their start: frames sent may have been lost, or come too early."""
        self.drafts_sent.clear()

    def _next_draft(self, conversation: Conversation) -> Draft | None:
        """Return the next draft frame that this reader lacks, and note it as sent."""
        while self.drafts_due:
            request = min(self.drafts_due)
            stream = conversation.drafts.get(request)
            run, tokens, size = self.drafts_sent.get(request, (None, 0, 0))
            if stream is not None and run != stream.run:
                tokens = size = 0
            frame = stream.frame_at(tokens, size) if stream is not None else None
            if stream is None or frame is None:
                self.drafts_due.discard(request)
                continue
            if request not in self.drafts_sent:
                self.drafts_sent = {
                    one: at for one, at in self.drafts_sent.items() if one in conversation.drafts
                }
            end = tokens + len(frame.token_ids), size + len(frame.data)
            self.drafts_sent[request] = stream.run, *end
            if end == (stream.token_count, stream.byte_count):
                self.drafts_due.discard(request)  # also behind progress, which moves nothing
            return frame
        return None


def is_sending(channel: Channel) -> bool:
    """Say whether ids or entries are queued for sending."""
    return channel.ids_due is not None or channel.backlog is not None or bool(channel.outgoing)


def offer_again(channel: Channel, ids: Iterable[EntryId]) -> None:
    """Await acks again of the entries among these that were refused: the hub may take them now."""
    for entry_id in ids:
        if channel.refused.pop(entry_id, None) is not None:
            channel.unacked.add(entry_id)


def ids_kept(channels: Iterable[Channel]) -> int:
    """Count the ids that these channels keep because a hub named them."""
    return sum(len(channel.peer_ids) + len(channel.wanted) for channel in channels)


def memory_bytes(channel: Channel, lanes: int) -> int:
    """Return the memory of a channel's state, about; a walk holds something per lane."""
    sets = (channel.peer_ids, channel.wanted, channel.refused)
    is_walking = channel.ids_due is not None or channel.backlog is not None
    ids = channel.backlog.ids_kept if channel.backlog is not None else 0
    ids += sum(map(len, sets))
    kept = _CHANNEL_BYTES + _ID_BYTES * ids + channel.outgoing.memory_bytes
    return kept + _WALK_BYTES * lanes * is_walking
