"""A replica that reconciles by the text of spec/05, and notes what the hub detects."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from antiphon.conformance.io.member import KeptLink, Overdue
from replica.conversation import Conversation
from replica.ids import EntryId
from replica.link import (
    Ack,
    Close,
    Entries,
    Fault,
    Ids,
    Message,
    Open,
    Opened,
    compare_heads,
    lacking,
)
from replica.log import Entry, send_order

DIFFERENT = "DIFFERENT"
NOT_FOUND = "CONVERSATION_NOT_FOUND"
ENTRIES_MISSING = "ENTRIES_MISSING"
ROUNDS_MAX = 20
ROUND_S = 0.3
"""Pause before the comparison is made again, while nothing arrives, in seconds."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer of a hub that refuses the conversation."""

    reason: str


class Reconciling:
    """One conversation on one link, compared with heads until both digests are equal."""

    def __init__(self, link: KeptLink, held: Conversation, label: Callable[[EntryId], str]) -> None:
        """Reconcile `held`, which grows; `label` names entries in `detected`."""
        self.detected: set[str] = set()
        self._link = link
        self._held = held
        self._label = label
        self._answers: list[Opened | Fault | Close] = []
        self._to_send: list[Message] = []
        self._unacked: set[EntryId] = set()
        self._hub_ids: set[EntryId] = set()
        link.react = self._receive

    async def run(self) -> bool:
        """Compare until the hub states the same digest; say whether it did. Raises Overdue."""
        for round_ in range(ROUNDS_MAX):
            answer = await self.open()
            if isinstance(answer, Opened):
                if answer.equal:
                    return True
                self._compare(answer)
            elif answer.reason != NOT_FOUND or NOT_FOUND in self.detected:
                self.detected.add(answer.reason)
                return False
            else:
                self.detected.add(NOT_FOUND)
                self._offer(list(self._held.log.entries.values()))
            seen = len(self._link.inbox)
            await self._settle()
            if round_:  # at first the hub's entries come before its next answer
                await self._pause(seen)
        return False

    async def open(self) -> Opened | Refused:
        """Open with heads; return the hub's answer."""
        seen = len(self._answers)
        log = self._held.log
        await self._link.send(Open(self._held.id, log.digest, log.heads(), drafts=True))
        await self._link.until(lambda: len(self._answers) > seen, "Opened")
        answer = self._answers[-1]
        if isinstance(answer, Opened):
            return answer
        fault = answer.fault if isinstance(answer, Close) else answer
        return Refused(fault.reason if fault is not None else "closed without a reason")

    def _compare(self, answer: Opened) -> None:
        if not self._unacked and not self._to_send:
            self.detected.add(DIFFERENT)
        verdict = compare_heads(self._held.log, answer.heads or ())
        if verdict.diverged or answer.heads is None:
            self._to_send.append(Ids(self._held.id, self._ids()))
        else:
            self._offer(list(lacking(self._held.log, verdict.held)))

    async def _settle(self) -> None:
        """Send what is due until all of it is acked or refused."""
        while True:
            due, self._to_send = self._to_send, []
            await self._link.send(*due)
            seen = len(self._link.inbox)
            if self._unacked:
                await self._link.until(partial(self._is_news, seen), "acks")
            elif not self._to_send:
                break

    async def _pause(self, seen: int) -> None:
        try:
            await self._link.until(lambda: len(self._link.inbox) > seen, "news", ROUND_S)
        except Overdue:
            return

    def _is_news(self, seen: int) -> bool:
        return not self._unacked or bool(self._to_send) or len(self._link.inbox) > seen

    def _offer(self, entries: list[Entry]) -> None:
        if entries:
            self._unacked.update(entry.id for entry in entries)
            ordered = sorted(entries, key=send_order)
            self._to_send.append(Entries(self._held.id, tuple(ordered)))

    def _ids(self) -> tuple[EntryId, ...]:
        return tuple(sorted(self._held.log.covered()))

    def _receive(self, message: Message) -> None:
        match message:
            case Opened(conversation) if conversation == self._held.id:
                self._answers.append(message)
            case Close(conversation) if conversation == self._held.id:
                self._answers.append(message)
            case Entries(conversation, entries) if conversation == self._held.id:
                for entry in entries:
                    self._held.admit(entry)
            case Ack(conversation, ids) if conversation == self._held.id:
                for entry_id in ids:
                    self._mark_acked(entry_id)
            case Ids(conversation) if conversation == self._held.id:
                self._receive_ids(message)
            case Fault(conversation=conversation) if conversation == self._held.id:
                self._receive_fault(message)
            case _:
                pass

    def _mark_acked(self, entry_id: EntryId) -> None:
        at: EntryId | None = entry_id
        while at is not None and at in self._held.log.entries:
            self._unacked.discard(at)
            at = self._held.log.entries[at].header.prev

    def _receive_ids(self, message: Ids) -> None:
        self._hub_ids.update(message.ids)
        if message.more:
            return
        if not message.answer:
            self._to_send.append(Ids(self._held.id, self._ids(), answer=True))
        log = self._held.log
        self._offer([log.entries[i] for i in self._ids() if i not in self._hub_ids])
        self._hub_ids = set()

    def _receive_fault(self, fault: Fault) -> None:
        if fault.reason == ENTRIES_MISSING:
            log = self._held.log
            self._offer([log.entries[i] for i in fault.missing if i in log.entries])
        elif fault.entry is None:
            self._unacked.clear()  # it refuses all that was offered
            self._answers.append(fault)
        elif fault.reason == "LANES_DIVERGED":
            self.detected.add(f"{fault.reason} {self._label(fault.entry)}")
        elif fault.reason == NOT_FOUND:
            self._unacked.clear()  # the answer to the next Open says it
        else:
            self._unacked.discard(fault.entry)
            self.detected.add(f"{fault.reason} {self._label(fault.entry)}")
