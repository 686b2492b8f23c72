"""One call of Push: entries appended without a link, in one part or several (spec/04-link §9).

Pure. An entry may name one of a later part, so what is pending is kept until the call ends.
"""

from collections.abc import Callable
from dataclasses import replace

from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Effects, EffectsBuilder, Entries, Fault, Intake, Message
from replica.refusals import EntriesMissing, NotAllowed
from syncd.calls import queries
from syncd.links import Connected, FanOut, HubEffects
from syncd.policy import Policy
from syncd.shelves import HubShelf

FAULT_IDS_MAX = 64
"""Missing ids that are looked for per entry: a fault names no more."""

Outcomes = dict[EntryId, Fault | None]
"""Per pushed entry the fault that refused it, None if it is admitted."""


class Pushing:
    """A call that runs; `end` it in any case."""

    def __init__(
        self,
        peer: PublicKey,
        policy: Policy,
        refusals: Callable[[PublicKey | None, Message], tuple[Fault, ...]],
        receive: Callable[[PublicKey | None, Message, Callable[[], Effects]], Effects],
        connected: Connected,
        shelf: HubShelf,
    ) -> None:
        """Append for a key; `refusals` and `receive` are those of the hub for any link."""
        self._peer, self._refusals, self._receive = peer, refusals, receive
        self._connected, self._shelf = connected, shelf
        self._intake = Intake(
            shelf,
            is_hub=True,
            send=self._note,
            may_create=policy.may_create,
            entries_max=policy.entries_max,
        )
        self.has_waited = False
        """Whether entries waited for others, perhaps for those of another link."""
        self._faults: list[Fault] = []
        self._outcomes: Outcomes = {}

    def _note(self, message: Message, _out: EffectsBuilder) -> None:
        assert isinstance(message, Fault), "an intake answers with faults alone"
        self._faults.append(message)

    def receive(self, part: Entries, now: float) -> HubEffects:
        """Append a part; its admitted entries are durable once the effects are performed."""
        refusals = self._refusals(self._peer, part)
        if refusals:
            self._outcomes |= dict.fromkeys(part.ids, replace(refusals[0], entry=None))
            return HubEffects()
        out = FanOut(self._connected, self._shelf, now)
        out.add(None, self._receive(self._peer, part, lambda: self._admit(part)))
        faults, self._faults = self._faults, []
        held = self._shelf.get(part.conversation)
        self._outcomes |= queries.outcomes(part.ids, faults, held)
        return out.build()

    def _admit(self, part: Entries) -> Effects:
        out = EffectsBuilder()
        known = self._intake.receive(part, self._peer, out)
        held = self._shelf.get(part.conversation)
        if held is not None:
            self._intake.covered(held, known, out)
        return out.build(None)

    def outcomes(self, conversation: ConversationId) -> Outcomes:
        """Return the outcomes of all parts, as after the last one (ORD-16)."""
        held = self._shelf.get(conversation)
        if held is None:
            return self._outcomes
        log, covered = held.log, held.log.covered()
        waited = [
            entry_id
            for entry_id, fault in self._outcomes.items()
            if fault is not None and fault.reason in (EntriesMissing.reason, NotAllowed.reason)
        ]
        # Admitted or covered by a later part, or by what others brought meanwhile.
        came = [i for i in waited if i in covered]
        self.has_waited = bool(came)
        self._outcomes |= dict.fromkeys(came)
        pending = [i for i in waited if i in log.pending]
        missing = log.admission.missing_for_each(pending, FAULT_IDS_MAX)
        for entry_id in pending:
            self._outcomes[entry_id] = Fault.of(EntriesMissing(missing=missing[entry_id]))
        return self._outcomes

    def whole(self, message: Entries, now: float) -> tuple[HubEffects, Outcomes]:
        """Append in one part, and end."""
        effects = self.receive(message, now)
        outcomes = self.outcomes(message.conversation)
        self.end()
        return effects, outcomes

    def end(self) -> None:
        """Drop what is pending: it must not stay without a link's quota."""
        self._intake.drop_pending()
