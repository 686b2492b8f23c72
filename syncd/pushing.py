"""One call of Push: entries appended without a link, in one part or several (spec/04-link §9).

Pure. An entry may name one of a later part, so what is pending is kept until the call ends.
"""

from collections.abc import Callable

from replica.ids import ConversationId, EntryId
from replica.link import Entries, Fault, Link
from replica.refusals import EntriesMissing
from syncd import queries
from syncd.fan_out import HubEffects
from syncd.shelf import HubShelf

Outcomes = dict[EntryId, Fault | None]
"""Per pushed entry the fault that refused it, None if it is admitted."""
Append = Callable[[Link, Entries, float], tuple[HubEffects, Outcomes]]


class Pushing:
    """A call that runs; `end` it in any case."""

    def __init__(self, link: Link, append: Append, shelf: HubShelf) -> None:
        """Append by a link of the call's own, which is connected to nothing."""
        self._link, self._append, self._shelf = link, append, shelf
        self._outcomes: Outcomes = {}

    def receive(self, part: Entries, now: float) -> HubEffects:
        """Append a part; its admitted entries are durable once the effects are performed."""
        effects, found = self._append(self._link, part, now)
        self._outcomes |= found
        return effects

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
                lacks = EntriesMissing(missing=fate.missing)
                self._outcomes[entry_id] = Fault.of(lacks)
        return self._outcomes

    def end(self) -> None:
        """Drop what is pending: it must not stay without a link's quota."""
        self._link.handle_disconnect()
