"""One call of Push: entries appended without a link, in one part or several (spec/04-link §9).

Pure. An entry may name one of a later part, so what is pending is kept until the call ends.
"""

from collections.abc import Callable
from dataclasses import replace

from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Effects, Entries, Fault, Link, Message
from replica.refusals import EntriesMissing
from syncd import queries
from syncd.connected import Connected
from syncd.fan_out import FanOut, HubEffects
from syncd.shelf import HubShelf

Outcomes = dict[EntryId, Fault | None]
"""Per pushed entry the fault that refused it, None if it is admitted."""


class Pushing:
    """A call that runs; `end` it in any case."""

    def __init__(
        self,
        link: Link,
        refusals: Callable[[PublicKey | None, Message], tuple[Fault, ...]],
        receive: Callable[[Link, Message, float], Effects],
        connected: Connected,
        shelf: HubShelf,
    ) -> None:
        """Append by a link of the call's own, which is connected to nothing.

        `refusals` and `receive` are those of the hub for any link.
        """
        self._link, self._refusals, self._receive = link, refusals, receive
        self._connected, self._shelf = connected, shelf
        self._outcomes: Outcomes = {}

    def receive(self, part: Entries, now: float) -> HubEffects:
        """Append a part; its admitted entries are durable once the effects are performed."""
        refusals = self._refusals(self._link.peer, part)
        if refusals:
            self._outcomes |= dict.fromkeys(part.ids, replace(refusals[0], entry=None))
            return HubEffects()
        out = FanOut(self._connected, self._shelf, now)
        effects = self._receive(self._link, part, now)
        out.add(None, effects)
        faults = [f.message for f in effects.send if isinstance(f.message, Fault)]
        held = self._shelf.get(part.conversation)
        self._outcomes |= queries.outcomes(part.ids, faults, held)
        return out.build()

    def outcomes(self, conversation: ConversationId) -> Outcomes:
        """Return the outcomes of all parts; entries that are still pending are refused."""
        held = self._shelf.get(conversation)
        if held is None:
            return self._outcomes
        for entry_id, fault in self._outcomes.items():
            if fault is None or fault.reason != EntriesMissing.reason:
                continue
            if entry_id in held.log.covered():
                self._outcomes[entry_id] = None  # by a later part
                continue
            fate = queries.fate_of(held, entry_id)
            if isinstance(fate, queries.Pending):
                self._outcomes[entry_id] = Fault.of(EntriesMissing(missing=fate.missing))
        return self._outcomes

    def whole(self, message: Entries, now: float) -> tuple[HubEffects, Outcomes]:
        """Append in one part, and end."""
        effects = self.receive(message, now)
        outcomes = self.outcomes(message.conversation)
        self.end()
        return effects, outcomes

    def end(self) -> None:
        """Drop what is pending: it must not stay without a link's quota."""
        self._link.handle_disconnect()
