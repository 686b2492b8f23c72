"""Claims about comparisons that an application asks for: what the hub held then is here."""

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import Violation

Subject = tuple[str, ConversationId]
"""A replica by its name, and a conversation."""


class Comparisons:
    """The comparisons that were asked for, with what the hub held at that time."""

    def __init__(self, mix: Mix) -> None:
        self._is_checked = mix.has_lossless_links
        self._asked: dict[Subject, list[tuple[float, frozenset[EntryId]]]] = {}
        self.checked = 0

    def asked(self, name: str, conversation: ConversationId, now: float, hub: Conversation) -> None:
        """Record that a replica asks for what the hub holds now."""
        held = frozenset(hub.log.covered())
        self._asked.setdefault((name, conversation), []).append((now, held))

    def forgotten(self, name: str) -> None:
        """Record that a replica lost its memory, and whoever waits there."""
        self._asked = {
            subject: asked for subject, asked in self._asked.items() if subject[0] != name
        }

    def answered(
        self, name: str, held: Conversation, since: float, hub: Conversation | None
    ) -> None:
        """Check a replica that is in sync as of a comparison which began at `since`."""
        asked = self._asked.get((name, held.id), [])
        due = [one for one in asked if one[0] <= since]
        self._asked[name, held.id] = [one for one in asked if one[0] > since]
        if not self._is_checked or hub is None:
            return
        for at, ids in due:
            self.checked += 1
            lacking = (ids & hub.log.covered()) - held.log.entries.keys()
            if lacking:
                raise Violation(
                    f"{name} is in sync as of {at:.3f} and lacks {sorted(lacking)[0].hex()[:6]},"
                    " which the hub held then"
                )
