"""Admission of entries from a peer: strangers, pending and refused entries (spec/04-link §5).

Pure; part of each link, and a hub's Push has one without a link. A pending entry is charged to
the link that delivered it, so no peer uses up another's quota. A stranger becomes a member by
the log it brings (DECISIONS D22), and otherwise learns nothing (DECISIONS D21).
A blocked conversation admits its lost entries from any peer (DECISIONS D46).
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from replica import limits
from replica.conversation import Conversation, Shelf
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAdmitted, EntryFailed
from replica.link.messages import Entries, Fault, Message
from replica.link.quotas import check_quotas
from replica.log import MEMBERSHIP_TRACKS, Admitted, Duplicate, Entry, Pending
from replica.refusals import (
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    NotAllowed,
    PendingFull,
    QuotaExceeded,
)

_UNCOVERED = "the author is a reader or its entry lies behind a cut, and no member's entry follows"


@dataclass(slots=True)
class Outcome:
    """The outcome of admitting the entries of one message."""

    known: list[EntryId] = field(default_factory=list)
    """Ids in the log, new or not."""
    admitted: list[Entry] = field(default_factory=list)
    missing: set[EntryId] = field(default_factory=set)


class Intake:
    """Admission at one end of a link; `pending_bytes` are the pending bytes charged to it."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        is_hub: bool,
        send: Callable[[Message, EffectsBuilder], None],
        may_create: Callable[[PublicKey], bool],
        entries_max: int | None,
    ) -> None:
        """Use the caller's shelf; only a hub checks membership of its peer."""
        self.shelf = shelf
        self.pending: dict[EntryId, tuple[ConversationId, int]] = {}
        self.pending_bytes = 0
        self._is_hub = is_hub
        self._send = send
        self._may_create = may_create
        self._entries_max = entries_max

    def receive(
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder
    ) -> list[EntryId]:
        """Admit each entry, and report the refused and the missing ones (LINK-13).

        Returns the ids that are in the log now, new or not.
        """
        outcome = Outcome()
        try:
            held = self._conversation_for(message, peer)
            if self._is_hub:
                self._repair(held, message, out)
            # One batch, so that ORD-17 is about all changes of the frame.
            with held.log.meter, held.batch:
                if self._is_hub:
                    self._introduce(held, message, peer, out)
                self._admit_all(held, message, outcome, out)
        except AntiphonError as error:
            first = next((e.id for e in message.entries), None)
            self._fault(error, message.conversation, out, first)
            return []
        self._finish(held, message, outcome, out)
        return outcome.known

    def covered(
        self, held: Conversation, known: list[EntryId], out: EffectsBuilder
    ) -> list[EntryId]:
        """Return those of these ids that peers have to keep; report the others (ORD-13)."""
        covered = held.log.covered()
        kept = [i for i in known if i in covered]
        if len(kept) < len(known):
            for entry_id in known:
                if entry_id not in covered:
                    self._fault(NotAllowed(_UNCOVERED), held.id, out, entry_id)
        return kept

    def _admit_all(
        self, held: Conversation, message: Entries, outcome: Outcome, out: EffectsBuilder
    ) -> None:
        for entry_id, broken_rule in message.refused:
            self._refuse(held.id, entry_id, broken_rule, out)
        for entry in held.log.meter.turns(message.entries):
            self._admit(held, entry, outcome, out)

    def freed_by(self, message: Entries, ids: Iterable[EntryId]) -> frozenset[EntryId]:
        """Return those of these admitted ids that the peer did not send on this link."""
        sent = frozenset(message.ids)
        return frozenset([i for i in ids if i not in sent and i not in self.pending])

    def _finish(
        self, held: Conversation, message: Entries, outcome: Outcome, out: EffectsBuilder
    ) -> None:
        if outcome.admitted:
            freed = self.freed_by(message, [entry.id for entry in outcome.admitted])
            out.deliver.append(EntriesAdmitted(held.id, tuple(outcome.admitted), freed))
        log = held.log
        missing = [i for i in outcome.missing if i not in log.entries and i not in log.pending]
        if missing:
            self._fault(EntriesMissing(missing=sorted(missing)), held.id, out)

    def _conversation_for(self, message: Entries, peer: PublicKey | None) -> Conversation:
        held = self.shelf.get(message.conversation)
        if held is not None:
            return held
        if self._is_hub and (peer is None or not message.brings_genesis):
            raise ConversationUnknown
        held = Conversation(message.conversation)
        self.shelf.add(held)
        return held

    def _repair(self, held: Conversation, message: Entries, out: EffectsBuilder) -> None:
        """Admit entries that the store lost of a blocked conversation, from any peer (LINK-33).

        Their ids prove their content. The sender gets no answer about them.
        """
        if not held.is_blocked:
            return
        outcome, unsent = Outcome(), EffectsBuilder()
        back = [e for e in message.entries if e.id in held.damage.missing]
        with held.log.meter, held.batch:
            for entry in held.log.meter.turns(back):
                self._admit(held, entry, outcome, unsent)
        here = (held.log.entries, held.log.pending)
        held.damage.add_missing(i for i in outcome.missing if not any(i in known for known in here))
        self._drop(e.id for e in back if e.id in self.pending)
        out.persist += unsent.persist
        if outcome.admitted:
            out.deliver.append(EntriesAdmitted(held.id, tuple(outcome.admitted)))

    def _introduce(
        self,
        held: Conversation,
        message: Entries,
        peer: PublicKey | None,
        out: EffectsBuilder,
    ) -> None:
        """Admit the membership entries a stranger brings; raise unless they make it a member.

        None of a stranger's entries stays pending and none is answered for, since
        any difference would show that the conversation is here. Raises
        ConversationUnknown or CreateForbidden.
        """
        if peer is not None and held.is_member(peer):
            return
        if not message.brings_genesis:
            # As where the conversation is unknown, at the same cost (LINK-9): the id alone
            # must not make a hub verify signatures.
            raise ConversationUnknown
        shown = [e for e in message.entries if e.header.track in MEMBERSHIP_TRACKS]
        if held.is_blocked:
            raise self._refusal(held.id, shown, peer)
        is_new = not held.log.entries
        outcome, trial = Outcome(), EffectsBuilder()
        pending_before = [e.id for e in shown if e.id in held.log.pending]
        with held.batch:
            for entry in held.log.meter.turns(shown):
                self._admit(held, entry, outcome, trial)
        is_member = peer is not None and held.is_member(peer)
        may_bring = peer is not None and (not is_new or self._may_create(peer))
        if is_new and not (is_member and may_bring):
            self._forget(held)
        else:
            out.persist += trial.persist
            if outcome.admitted:
                out.deliver.append(EntriesAdmitted(held.id, tuple(outcome.admitted)))
        if not (is_member and may_bring):
            self._drop(e.id for e in shown if e.id in self.pending and e.id not in pending_before)
            raise self._refusal(held.id, shown, peer)

    def _refusal(
        self, conversation: ConversationId, shown: list[Entry], peer: PublicKey | None
    ) -> AntiphonError:
        """Return the refusal of a stranger, the same whether the conversation is here or not.

        It depends on the stranger's own entries alone.
        """
        if peer is None or self._may_create(peer):
            return ConversationUnknown()
        alone = Conversation(conversation)
        for entry in shown:
            with suppress(EntryRefused):
                alone.admit(entry)
        return CreateForbidden() if alone.is_member(peer) else ConversationUnknown()

    def _forget(self, held: Conversation) -> None:
        """Remove a conversation that was not begun after all."""
        self.shelf.remove(held.id)
        self._drop(i for i, (conversation, _) in self.pending.items() if conversation == held.id)

    def _admit(
        self, held: Conversation, entry: Entry, outcome: Outcome, out: EffectsBuilder
    ) -> None:
        try:
            if entry.id not in held.log.entries and entry.id not in held.log.pending:
                check_quotas(held, entry, self._entries_max)
            verdict = held.admit(entry)
        except (EntryRefused, QuotaExceeded) as error:
            self._refuse(held.id, entry.id, error, out)
            return
        match verdict:
            case Admitted(entries, refused):
                out.persist += verdict.unstored
                outcome.admitted += entries
                outcome.known += [e.id for e in entries]
                for pending, reason in refused:
                    self._refuse(held.id, pending.id, reason, out)
            case Duplicate(filled):
                if filled is not None:
                    out.persist.append(filled)
                    outcome.admitted.append(filled)  # other links may lack its body, too
                if entry.id in held.log.entries:
                    outcome.known.append(entry.id)
                else:  # it is pending; whoever sends it again learns for what, too
                    outcome.missing.update(held.log.admission.named_by(entry.id))
            case Pending(missing):
                outcome.missing.update(missing)
                self._charge(held, entry, out)

    def _charge(self, held: Conversation, entry: Entry, out: EffectsBuilder) -> None:
        _, before = self.pending.get(entry.id, (held.id, 0))
        size = max(entry.size_bytes, limits.PENDING_ENTRY_BYTES_MIN)
        self.pending[entry.id] = (held.id, size)
        self.pending_bytes += size - before
        if self.pending_bytes > limits.PENDING_LINK_BYTES_MAX:
            self.release()
        if self.pending_bytes > limits.PENDING_LINK_BYTES_MAX:
            self.drop_overflow(out)

    def release(self) -> None:
        """Release the charge for entries that are no longer pending."""
        for entry_id, (conversation, size) in tuple(self.pending.items()):
            held = self.shelf.find(conversation)
            if held is None or entry_id not in held.log.pending:
                del self.pending[entry_id]
                self.pending_bytes -= size

    def drop_overflow(self, out: EffectsBuilder) -> None:
        """Drop the pending entries this link delivered, with a fault per conversation."""
        for conversation in sorted({c for c, _ in self.pending.values()}):
            self._fault(PendingFull(), conversation, out)
        self.drop_pending()

    def drop_pending(self) -> None:
        """Drop the pending entries this link delivered."""
        self._drop(self.pending)

    def _drop(self, entry_ids: Iterable[EntryId]) -> None:
        by_conversation: dict[ConversationId, list[EntryId]] = {}
        for entry_id in tuple(entry_ids):
            conversation, size = self.pending.pop(entry_id)
            self.pending_bytes -= size
            by_conversation.setdefault(conversation, []).append(entry_id)
        for conversation, dropped in by_conversation.items():
            self.shelf.drop_pending(conversation, dropped)

    def _refuse(
        self,
        conversation: ConversationId,
        entry_id: EntryId,
        error: AntiphonError,
        out: EffectsBuilder,
    ) -> None:
        fault = Fault.of(error, conversation, entry_id)
        self._send(fault, out)
        out.deliver.append(EntryFailed(conversation, entry_id, fault, is_own=True))

    def _fault(
        self,
        error: AntiphonError,
        conversation: ConversationId,
        out: EffectsBuilder,
        entry_id: EntryId | None = None,
    ) -> None:
        self._send(Fault.of(error, conversation, entry_id), out)
