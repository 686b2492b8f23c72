"""Applies the cost budget to frames and calls (spec/11-limits, LIM-8)."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from replica.ids import ConversationId, PublicKey
from replica.limits import PAYERS_MAX, WAIT_S_MAX
from replica.link import Message, conversation_of
from replica.refusals import RateLimited
from syncd.bounds import (
    STRANGERS,
    UPLOAD_UNITS,
    Budget,
    Payer,
    is_reserved,
    units_of,
    units_of_entries,
    units_of_work,
    units_sent,
    vouched,
)
from syncd.hub import Hub
from syncd.links import HubEffects, LinkId

CALL_BYTES = 4_096
"""Bytes that a call is charged for, beside those it reads."""


class Throttle:
    """Lets the keys wait that cause most of the work, once a hub is behind with it."""

    def __init__(self, hub: Hub, budget: Budget) -> None:
        """Use the caller's hub, which tells members from strangers, and budget."""
        self._hub = hub
        self._budget = budget
        self._payers: dict[PublicKey, tuple[Payer, ConversationId]] = {}
        """The payer of each key's last work as a member, and in which conversation."""
        self.answered: dict[LinkId, ConversationId] = {}
        """The conversation of the last answer to each link."""

    def payer_of(self, peer: PublicKey) -> Payer:
        """Return who paid for a key's last work as a member; all others are strangers, as one."""
        payer, _ = self._payers.get(peer, (STRANGERS, None))
        return payer

    def _payer(self, peer: PublicKey, conversation: ConversationId, now: float) -> Payer:
        """Return who pays: a member in the pool of the creator, else all strangers as one."""
        payer = self._find_payer(peer, conversation, now)
        if payer is STRANGERS:
            _, known = self._payers.get(peer, (None, None))
            if known == conversation:  # the key was removed
                del self._payers[peer]
        else:
            self._payers[peer] = payer, conversation
            if len(self._payers) > PAYERS_MAX:
                del self._payers[next(iter(self._payers))]
        return payer

    def _find_payer(self, peer: PublicKey, conversation: ConversationId, now: float) -> Payer:
        held = self._hub.shelf.find(conversation)
        is_member = held is not None and not self._hub.shelf.is_stranger(conversation, peer)
        if not is_member and not self._hub.needs_load(peer, conversation):
            return STRANGERS
        if self._hub.policy.vouches_for(peer):
            return vouched(peer)
        creator = held.creator if held is not None else None
        return self._budget.payer(peer, creator if creator is not None else peer, now)

    def _payer_alone(self, peer: PublicKey, now: float) -> Payer:
        """Return who pays where no conversation is named: a creator in its pool, else strangers."""
        if self._hub.policy.vouches_for(peer):
            return vouched(peer)
        if peer not in self._hub.bringers.keys:
            return STRANGERS
        return self._budget.payer(peer, peer, now)

    def call(self, peer: PublicKey, entries: int | None = None) -> None:
        """Charge a call that names no conversation, of so many entries if it is a Push.

        Raises RateLimited if it has to wait.
        """
        now = time.monotonic()
        payer = self._payer_alone(peer, now)
        wait_s = self._budget.wait_s(payer, now)
        if wait_s > 0:
            raise RateLimited(retry_after_s=wait_s)
        units = units_sent(CALL_BYTES) if entries is None else units_of_entries(entries)
        self._budget.charge(payer, units, now)

    async def wait(self, peer: PublicKey, conversation: ConversationId, message: Message) -> None:
        """Return when a frame of a link may be received; nothing is read meanwhile."""
        wait_s = self._wait_s(peer, conversation, message)
        if wait_s > 0:
            await asyncio.sleep(min(wait_s, WAIT_S_MAX))

    def check(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> None:
        """Raise RateLimited if a call has to wait."""
        wait_s = self._wait_s(peer, conversation, message)
        if wait_s > 0:
            raise RateLimited(retry_after_s=wait_s)

    def _wait_s(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None
    ) -> float:
        now = time.monotonic()
        if not self._budget.is_behind(now):
            return 0.0
        payer = self._payer(peer, conversation, now)
        if message is not None and is_reserved(message) and self._budget.has_reserve(payer, now):
            return 0.0
        return self._budget.wait_s(payer, now)

    def charge(
        self,
        peer: PublicKey,
        conversation: ConversationId,
        message: Message | None = None,
        *,
        sent_bytes: int = 0,
        work: int = 0,
        uploads: int = 0,
    ) -> None:
        """Charge a message; the bytes that answer it; its work on the log; uploads that begin."""
        units = (units_of(message) if message is not None else 0) + units_sent(sent_bytes)
        units += units_of_work(work) + UPLOAD_UNITS * uploads
        if not units:
            return
        now = time.monotonic()
        reserved = message is not None and is_reserved(message)
        self._budget.charge(self._payer(peer, conversation, now), units, now, reserved=reserved)

    def charge_answer(self, link_id: LinkId, peer: PublicKey, effects: HubEffects) -> None:
        """Charge a link's peer for what is sent to it, by the conversation it is about."""
        sent: Counter[ConversationId | None] = Counter()
        for to, frame in effects.send:
            if to == link_id:
                sent[conversation_of(frame)] += len(frame.data)
        for conversation, size in sent.items():
            if conversation is None:  # a Welcome, or a Listing
                now = time.monotonic()
                self._budget.charge(self._payer_alone(peer, now), units_sent(size), now)
                continue
            self.charge(peer, conversation, sent_bytes=size)
            if link_id in self._hub.links:
                self.answered[link_id] = conversation

    def note_established(self) -> None:
        """Note the creators of the conversations known now, before the first call."""
        for creator in self._hub.bringers.keys:
            self._budget.note_established(creator)

    def charged(
        self,
        peer: PublicKey,
        conversation: ConversationId,
        message: Message,
        receive: Callable[[], HubEffects],
    ) -> HubEffects:
        """Receive a message; charge it, and the work on the log that it causes (LIM-9)."""
        before = self._work(conversation)
        try:
            return receive()
        finally:
            work = max(0, self._work(conversation) - before)
            self.charge(peer, conversation, message, work=work)

    def _work(self, conversation: ConversationId) -> int:
        held = self._hub.shelf.get(conversation)
        return held.work if held is not None else 0
