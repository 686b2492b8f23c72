"""Taking entries from a peer: who may add, what waits, what is refused (spec/04-link §5).

Pure, and private to exchange.py. What waits is charged to the link that
delivered it, so nobody fills another's buffer.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from replica import limits
from replica.conversation import Conversation, Shelf
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAdmitted, EntryFailed
from replica.link.messages import Entries, Fault, Message
from replica.log import MEMBERSHIP_TRACKS, Admitted, Duplicate, Entry, Pending, Role
from replica.refusals import (
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    PendingFull,
    QuotaExceeded,
)


@dataclass(slots=True)
class Taken:
    """What became of the entries of one message."""

    known: list[EntryId] = field(default_factory=list)
    """In the log, whether new or not."""
    admitted: list[Entry] = field(default_factory=list)
    missing: set[EntryId] = field(default_factory=set)


class Intake:
    """Admission at one end of a link; `pending_bytes` is what waits at its expense."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        is_hub: bool,
        send: Callable[[Message, EffectsBuilder], None],
        may_create: Callable[[PublicKey], bool],
        entries_max: int | None,
    ) -> None:
        """Share the shelf; only a hub asks who its peer is."""
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
        """Admit each entry; persist, deliver, and say what is refused or missing (LINK-13).

        Returns the ids that are in the log now, new or not.
        """
        taken = Taken()
        try:
            held = self._place_for(message, peer)
            if self._is_hub:
                self._heal(held, message, out)
                self._introduce(held, message, peer, out)
        except AntiphonError as error:
            first = next((e.id for e in message.entries), None)
            self._fault(error, message.conversation, out, first)
            return []
        for entry_id, broken_rule in message.refused:
            self._refuse(held.id, entry_id, broken_rule, out)
        with held.batch():
            for entry in message.entries:
                self._admit(held, entry, taken, out)
        self._finish(held, taken, out)
        return taken.known

    def _finish(self, held: Conversation, taken: Taken, out: EffectsBuilder) -> None:
        if taken.admitted:
            out.deliver.append(EntriesAdmitted(held.id, tuple(taken.admitted)))
        log = held.log
        missing = sorted(i for i in taken.missing if i not in log.entries and i not in log.pending)
        if missing:
            self._fault(EntriesMissing(missing=missing), held.id, out)

    def _place_for(self, message: Entries, peer: PublicKey | None) -> Conversation:
        held = self.shelf.get(message.conversation)
        if held is not None:
            return held
        brings_genesis = any(e.header.conversation is None for e in message.entries)
        if self._is_hub and (peer is None or not brings_genesis):
            raise ConversationUnknown
        held = self.shelf[message.conversation] = Conversation(message.conversation)
        return held

    def _heal(self, held: Conversation, message: Entries, out: EffectsBuilder) -> None:
        """Take back what the store lost of a blocked conversation, whoever brings it (LINK-33).

        Its id says what it must be. The sender is told nothing of it.
        """
        if not held.is_blocked:
            return
        taken, unsaid = Taken(), EffectsBuilder()
        back = [e for e in message.entries if e.id in held.damage.missing]
        with held.batch():
            for entry in back:
                self._admit(held, entry, taken, unsaid)
        here = (held.log.entries, held.log.pending)
        held.damage.add_missing(i for i in taken.missing if not any(i in known for known in here))
        self._drop(e.id for e in back if e.id in self.pending)
        out.persist += unsaid.persist
        if taken.admitted:
            out.deliver.append(EntriesAdmitted(held.id, tuple(taken.admitted)))

    def _introduce(
        self,
        held: Conversation,
        message: Entries,
        peer: PublicKey | None,
        out: EffectsBuilder,
    ) -> None:
        """Let a stranger show the log that makes it a member; raise ConversationUnknown else.

        A stranger hears nothing of what it sent, and nothing of it waits here:
        any other answer would tell it that the conversation is here.
        """
        if peer is not None and held.is_member(peer):
            return
        shown = [e for e in message.entries if e.header.track in MEMBERSHIP_TRACKS]
        if held.is_blocked:
            raise self._refusal(held.id, shown, peer)
        is_new = not held.log.entries
        taken, trial = Taken(), EffectsBuilder()
        waited = [e.id for e in shown if e.id in held.log.pending]
        with held.batch():
            for entry in shown:
                self._admit(held, entry, taken, trial)
        is_member = peer is not None and held.is_member(peer)
        may_bring = peer is not None and (not is_new or self._may_create(peer))
        if is_new and not (is_member and may_bring):
            self._forget(held)
        else:
            out.persist += trial.persist
            if taken.admitted:
                out.deliver.append(EntriesAdmitted(held.id, tuple(taken.admitted)))
        if not (is_member and may_bring):
            self._drop(e.id for e in shown if e.id in self.pending and e.id not in waited)
            raise self._refusal(held.id, shown, peer)

    def _refusal(
        self, conversation: ConversationId, shown: list[Entry], peer: PublicKey | None
    ) -> AntiphonError:
        """Return why a stranger is not let in: the same, whether the conversation is here or not.

        What it may create is told by its own entries alone.
        """
        if peer is None or self._may_create(peer):
            return ConversationUnknown()
        alone = Conversation(conversation)
        for entry in shown:
            with suppress(EntryRefused):
                alone.admit(entry)
        return CreateForbidden() if alone.is_member(peer) else ConversationUnknown()

    def _forget(self, held: Conversation) -> None:
        """Take back a conversation that came to nothing."""
        del self.shelf[held.id]
        self._drop(i for i, (conversation, _) in self.pending.items() if conversation == held.id)

    def _admit(self, held: Conversation, entry: Entry, taken: Taken, out: EffectsBuilder) -> None:
        if entry.id not in held.log.entries and not self._has_room(held, entry):
            self._refuse(held.id, entry.id, QuotaExceeded("the conversation is full"), out)
            return
        try:
            verdict = held.admit(entry)
        except EntryRefused as error:
            self._refuse(held.id, entry.id, error, out)
            return
        match verdict:
            case Admitted(entries, refused):
                out.persist += verdict.unstored
                taken.admitted += entries
                taken.known += [e.id for e in entries]
                for waiting, reason in refused:
                    self._refuse(held.id, waiting.id, reason, out)
            case Duplicate(filled):
                if filled is not None:
                    out.persist.append(filled)
                    taken.admitted.append(filled)  # others may have got it without its body, too
                if entry.id in held.log.entries:
                    taken.known.append(entry.id)
            case Pending(missing):
                taken.missing.update(missing)
                self._charge(held, entry, out)

    def _has_room(self, held: Conversation, entry: Entry) -> bool:
        """Say whether the quota takes an entry; its owners can always end a full conversation."""
        if self._entries_max is None or len(held.log) < self._entries_max:
            return True
        roles = held.log.membership.roles.get(entry.header.author, ())
        is_owners = entry.header.track == Track.MEMBERSHIP and Role.OWNER in roles
        reserve = limits.MEMBERSHIP_RESERVE if is_owners else 0
        return len(held.log) < self._entries_max + reserve

    def _charge(self, held: Conversation, entry: Entry, out: EffectsBuilder) -> None:
        _, before = self.pending.get(entry.id, (held.id, 0))
        self.pending[entry.id] = (held.id, entry.size_bytes)
        self.pending_bytes += entry.size_bytes - before
        if self.pending_bytes > limits.PENDING_LINK_BYTES_MAX:
            self.settle()
        if self.pending_bytes > limits.PENDING_LINK_BYTES_MAX:
            self.drop_pending()
            self._fault(PendingFull(), held.id, out)

    def settle(self) -> None:
        """Stop paying for what no longer waits, whoever set it free."""
        for entry_id, (conversation, size) in tuple(self.pending.items()):
            held = self.shelf.get(conversation)
            if held is None or entry_id not in held.log.pending:
                del self.pending[entry_id]
                self.pending_bytes -= size

    def drop_pending(self) -> None:
        """Forget entries this link delivered that still wait for others."""
        self._drop(self.pending)

    def _drop(self, entry_ids: Iterable[EntryId]) -> None:
        for entry_id in tuple(entry_ids):
            conversation, size = self.pending.pop(entry_id)
            self.pending_bytes -= size
            held = self.shelf.get(conversation)
            if held is not None:
                held.log.admission.drop([entry_id])

    def _refuse(
        self,
        conversation: ConversationId,
        entry_id: EntryId,
        error: AntiphonError,
        out: EffectsBuilder,
    ) -> None:
        fault = Fault.of(error, conversation, entry_id)
        self._send(fault, out)
        out.deliver.append(EntryFailed(conversation, entry_id, fault))

    def _fault(
        self,
        error: AntiphonError,
        conversation: ConversationId,
        out: EffectsBuilder,
        entry_id: EntryId | None = None,
    ) -> None:
        self._send(Fault.of(error, conversation, entry_id), out)
