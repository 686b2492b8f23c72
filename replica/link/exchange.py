"""The conversations of one link: compare, then send the missing entries (spec/04-link §5).

Pure, and private to link.py, which owns greeting, credit and time. This module
has the part common to both sides; client_side.py and hub_side.py have the
parts of one side (DECISIONS D32).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import chain, islice
from typing import ClassVar

from replica import limits
from replica.conversation import Conversation, Draft, Shelf
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import comparison
from replica.link.channel import Channel, ids_kept, memory_bytes, offer_again
from replica.link.channels import Channels
from replica.link.credit import grant_bytes
from replica.link.draft_intake import accept_draft
from replica.link.effects import EffectsBuilder
from replica.link.events import DraftReceived, EntryFailed, StateChanged, SyncState
from replica.link.intake import Intake
from replica.link.messages import Close, Fault, Ids, Message
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged

ASKED_MAX = 63
"""Most lost entries and missing bodies one Open asks for: as many as a fault can name."""


class Side(Enum):
    """The two ends of a link."""

    CLIENT = "client"
    HUB = "hub"


class Exchange(ABC):
    """All channels of one link; the part common to both sides."""

    side: ClassVar[Side]

    def __init__(
        self,
        shelf: Shelf,
        *,
        send: Callable[[Message, EffectsBuilder], None],
        may_create: Callable[[PublicKey], bool],
        entries_max: int | None,
    ) -> None:
        """Use the caller's shelf; `send` counts a message against the credit."""
        self.shelf = shelf
        self.channels = Channels()
        self.passed_over: set[ConversationId] = set()
        """Conversations with something to send that were off the shelf at the last pump."""
        self.intake = Intake(
            shelf,
            is_hub=self.side is Side.HUB,
            send=send,
            may_create=may_create,
            entries_max=entries_max,
        )
        self._send = send
        self._opens = 0
        """The number of the last Open that was sent (client)."""
        self._compared = comparison.Compared()

    def receive(
        self, message: Message, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Receive a message about a conversation; its direction was checked by the link."""
        match message:
            case Ids():
                self.receive_ids(message, peer, out, now)
            case Draft():
                self.receive_draft(message, peer, out)
            case Fault():
                self.receive_fault(message, out)
            case Close(conversation, fault) if conversation is not None:
                self.receive_close(conversation, fault, out)
            case _:
                raise AssertionError(f"{type(message).__name__} is the link's business")

    def _may_read(self, held: Conversation, peer: PublicKey | None) -> bool:
        return self.side is Side.CLIENT or (peer is not None and held.is_member(peer))

    # --- the parts of one side --------------------------------------------------------

    @abstractmethod
    def _queue_missing(self, channel: Channel, entries: comparison.Backlog) -> None:
        """Queue entries that the peer lacks, given in send order."""

    @abstractmethod
    def _note_ids(
        self, channel: Channel, held: Conversation, ids: set[EntryId], out: EffectsBuilder
    ) -> None:
        """Receive the complete list of the ids the peer holds."""

    def _ids_to_keep(self, _held: Conversation, ids: Iterable[EntryId]) -> Iterable[EntryId]:
        """Return those of the peer's ids that the comparison needs."""
        return ids

    # --- entries ------------------------------------------------------------------

    @abstractmethod
    def offer(
        self, conversation: ConversationId, ids: Sequence[EntryId], now: float, *, send: bool = True
    ) -> None:
        """Queue new entries for the peer if it has the conversation open."""

    def _send_missing(
        self, channel: Channel, held: Conversation, heads: tuple[Position, ...]
    ) -> tuple[Position, ...]:
        """Queue the entries missing according to `heads`; return the positions that diverged.

        If there are any, all ids are exchanged, since heads do not suffice.
        """
        verdict = self._compared.verdict(held.log, heads)
        channel.wanted = set(verdict.wanted)
        if verdict.diverged:
            channel.queue_ids(held, answer=False)
        else:
            backlog = verdict.backlog or comparison.lacking(held.log, verdict.held)
            self._queue(channel, held, backlog)
        return verdict.diverged

    def _queue(self, channel: Channel, held: Conversation, entries: comparison.Backlog) -> None:
        if not held.is_blocked:  # LINK-34: it would include entries that a lost cut leaves out
            self._queue_missing(channel, entries)

    def _ask_missing(self, held: Conversation, out: EffectsBuilder) -> None:
        """Ask for entries the store lost and for missing bodies (LINK-14).

        Digests show neither: they cover headers, and a lost entry need not be covered.
        """
        asked = chain(sorted(held.damage.missing), held.log.bodyless)
        if missing := list(islice(asked, ASKED_MAX)):
            self._send(Fault.of(EntriesMissing(missing=missing), held.id), out)

    def receive_ids(
        self, message: Ids, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Queue the entries the peer lacks; answer with our ids unless this was the answer."""
        channel = self.channels.get(message.conversation)
        held = self.shelf.get(message.conversation)
        if channel is None or held is None or not self._may_read(held, peer):
            return
        if self.side is Side.CLIENT and message.answer not in channel.lists_due:
            return  # each makes a client look at its whole log
        # A hub keeps ids of its own entries alone, and charges them to the link (LIM-10).
        others = (one for one in self.channels.values() if one is not channel)
        beside = ids_kept(others) if self.side is Side.CLIENT else 0
        kept = self._ids_to_keep(held, message.ids)
        peer_ids = channel.collect_ids(kept, more=message.more, beside=beside)
        if peer_ids is None:
            return
        channel.lists_due.discard(message.answer)
        if not message.answer:
            channel.queue_ids(held, answer=True)
        self._note_ids(channel, held, peer_ids, out)
        self._queue(channel, held, self._compared.absent(held.log, peer_ids))
        channel.is_open = True
        # Also in state SYNCHRONIZED, since the ack of these entries may get lost.
        if channel.unacked and channel.recheck_at is None:
            channel.recheck(now + limits.RESYNC_S)
        channel.settle(out)

    # --- drafts, faults, close -------------------------------------------------------

    def receive_draft(self, message: Draft, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Check and keep a draft, and deliver it if it is new."""
        held = self.shelf.get(message.conversation)
        if held is None or not self._may_read(held, peer):
            return
        try:
            is_news = accept_draft(held, message, peer if self.side is Side.HUB else None)
        except AntiphonError as error:
            self._fault(error, held.id, out, message.request)
            return
        if is_news:
            out.deliver.append(DraftReceived(message))

    def receive_fault(self, message: Fault, out: EffectsBuilder) -> None:
        """Send missing entries; report any other fault, and don't send a refused entry again."""
        if message.conversation is None:
            return
        channel = self.channels.get(message.conversation)
        held = self.shelf.get(message.conversation)
        if channel is None:
            return
        match message.reason:
            case EntriesMissing.reason if held is not None:
                ours = self._wanted(held, message.missing)
                channel.in_flight.difference_update(ours)
                offer_again(channel, ours)
                channel.queue(e.id for e in held.log.in_send_order(ours))
                return
            case LanesDiverged.reason:
                channel.change(SyncState.RECONCILING, out)
            case _ if message.entry is not None:
                # Refused for good: it would be refused again.
                channel.refuse(message.entry, message)
                channel.settle(out)
            case _:
                pass
        out.deliver.append(EntryFailed(channel.id, message.entry, message))

    def _wanted(self, held: Conversation, missing: Sequence[EntryId]) -> list[EntryId]:
        """Return the entries to send of those that the peer lacks (LINK-14, LINK-34)."""
        offered = held.log.covered() if self.side is Side.HUB else held.log.entries
        return [i for i in missing if i in offered] if not held.is_blocked else []

    def receive_close(
        self, conversation: ConversationId, fault: Fault | None, out: EffectsBuilder
    ) -> None:
        """Close one conversation on this link at the peer's request."""
        if self.channels.pop(conversation, None) is not None:
            out.deliver.append(StateChanged(conversation, SyncState.OFFLINE))
            if fault is not None:
                out.deliver.append(EntryFailed(conversation, None, fault))

    def _fault(
        self,
        error: AntiphonError,
        conversation: ConversationId,
        out: EffectsBuilder,
        entry_id: EntryId | None = None,
    ) -> None:
        self._send(Fault.of(error, conversation, entry_id), out)

    # --- sending --------------------------------------------------------------

    def is_behind(self, conversation: ConversationId, peer: PublicKey | None) -> bool:
        """Say whether much waits for credit; not so for a peer that may not read any more.

        Its conversation is to be closed at once.
        """
        channel, held = self.channels.get(conversation), self.shelf.get(conversation)
        if channel is None or held is None:
            return False
        if channel.backlog is None and not channel.outgoing.is_long:
            return False
        return self._may_read(held, peer)

    def memory_bytes(self, conversation: ConversationId) -> int:
        """Return the memory that a conversation's channel takes, about."""
        if conversation not in self.channels:
            return 0
        channel, held = self.channels[conversation], self.shelf.get(conversation)
        return memory_bytes(channel, held.log.lane_count() if held is not None else 0)

    def pump(
        self, peer: PublicKey | None, out: EffectsBuilder, *, may_send: Callable[[], bool]
    ) -> None:
        """Send the queued frames of each conversation while there is credit.

        A hub sends no more at a time than makes the peer grant the next credit: a long
        backlog holds up nobody else.
        """
        sent, counted, is_client = 0, len(out.send), self.side is Side.CLIENT
        self.passed_over.clear()

        def may_go_on() -> bool:
            nonlocal sent, counted
            sent += sum(len(frame.data) for frame in out.send[counted:])
            counted = len(out.send)
            return may_send() and (is_client or sent < grant_bytes())

        for channel in self.channels.due():
            held = self.shelf.get(channel.id)
            if held is None:
                self.passed_over.add(channel.id)
                continue
            # Membership is checked at every delivery, not once per ticket.
            if not self._may_read(held, peer):
                del self.channels[channel.id]
                self._send(Close(channel.id, Fault.of(ConversationUnknown(), channel.id)), out)
                continue
            while may_go_on() and (frame := channel.next_frame(held, awaits_acks=is_client)):
                self._send(frame, out)
            if not may_go_on():
                return  # the others stay due
