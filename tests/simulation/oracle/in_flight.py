"""Claims about the entries of a client: none twice on a link without a reason."""

from replica.ids import ConversationId, EntryId
from replica.link import messages as m
from replica.link.effects import conversation_of
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import Violation, short

ASKING = ("CONVERSATION_NOT_FOUND", "ENTRIES_MISSING")


class InFlight:
    """The entries each client has sent on its link since it compared heads."""

    def __init__(self, mix: Mix) -> None:
        self._is_in_order = not (mix.reorder or mix.duplicate)
        """Otherwise an old answer has heads without the entries acked since."""
        self._link: dict[str, object] = {}
        self._sent: dict[tuple[str, ConversationId], set[EntryId]] = {}

    def sent(self, name: str, link: object, message: m.Message) -> None:
        """Check a message sent on a link."""
        if self._link.get(name) is not link:
            self._link[name] = link
            self._sent = {k: ids for k, ids in self._sent.items() if k[0] != name}
        match message:
            case m.Entries(conversation=conversation):
                sent = self._sent.setdefault((name, conversation), set())
                again = sent.intersection(message.ids)
                if again and self._is_in_order:
                    raise Violation(f"{name} sends {short(again)} again, which is in flight")
                sent.update(message.ids)
            case m.Open(heads=heads) if heads is None:
                pass
            case m.Open(conversation=conversation) | m.Close(conversation=conversation):
                self._sent.pop((name, conversation), None)
            case _:
                pass

    def received(self, name: str, message: m.Message) -> None:
        """Record the entries that the hub asks for again."""
        conversation = conversation_of(message)
        if isinstance(message, m.Fault) and message.reason in ASKING and conversation is not None:
            self._sent.pop((name, conversation), None)
