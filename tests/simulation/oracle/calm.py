"""Claims about runs without faults: no frame that only a fault could cause."""

from replica.ids import ConversationId, EntryId
from replica.limits import RESYNC_S
from replica.link import messages as m
from replica.link.codec import Direction
from replica.link.effects import conversation_of
from replica.link.events import SyncState
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import Violation, short

Stream = tuple[int, ConversationId]


class Calm:
    """The messages of each link in a run without losses, delays and reordering."""

    def __init__(self, mix: Mix) -> None:
        self._is_calm = mix.is_calm
        self._revokes = bool(mix.revoke)
        """Entries named by revocations, which are sent with them."""
        self._crossed: dict[Stream, set[EntryId]] = {}
        self._left: set[Stream] = set()
        self._compared: set[Stream] = set()
        self._unacked_since: dict[tuple[str, EntryId], float] = {}

    def sent(self, link_id: int, direction: Direction, message: m.Message) -> None:
        """Check a sent message: an entry crosses a link once, in either direction."""
        conversation = conversation_of(message)
        if not self._is_calm or conversation is None:
            return
        stream = (link_id, conversation)
        match message:
            case m.Close():
                self._left.add(stream)
            case _ if stream in self._left:
                pass  # entries that cross a Close may be dropped, and are sent again
            case m.Open(heads=heads) if heads is not None and stream in self._compared:
                # After 5 s of steady writing heads are compared; entries in flight repeat.
                self._left.add(stream)
            case m.Open(heads=heads) if heads is not None:
                self._compared.add(stream)
                self._crossed.pop(stream, None)
            case m.Fault(reason="CONVERSATION_NOT_FOUND"):
                self._crossed.pop(stream, None)
                self._compared.discard(stream)
            case m.Entries():
                crossed = self._crossed.setdefault(stream, set())
                again = crossed.intersection(message.ids)
                if again and not self._revokes:
                    raise Violation(f"{short(again)} cross link {link_id} again, {direction}")
                crossed.update(message.ids)
            case m.Fault(reason="ENTRIES_MISSING"):
                raise Violation(f"entries came before their ancestors; asked for {direction}")
            case _:
                pass

    def state(self, name: str, state: SyncState) -> None:
        """Check a change of state: no replica may notice a loss."""
        if self._is_calm and state is SyncState.DESYNCHRONIZED:
            raise Violation(f"{name} noticed a loss in a run without losses")

    def compares(self, name: str, link_id: int, conversation: ConversationId) -> None:
        """Check a comparison of heads: after the first, only unacked entries cause one."""
        stream = (link_id, conversation)
        again = stream in self._compared and stream not in self._left
        is_called_for = any(writer == name for writer, _ in self._unacked_since)
        if self._is_calm and again and not is_called_for:
            raise Violation(f"{name} compares heads again, though all it sent is acked")

    def left(self, name: str) -> None:
        """Record that a replica leaves a conversation, which acks may cross."""
        self._unacked_since = {k: at for k, at in self._unacked_since.items() if k[0] != name}

    def offered(self, name: str, ids: tuple[EntryId, ...], now: float) -> None:
        """Record entries that a replica sends."""
        for entry_id in ids:
            self._unacked_since.setdefault((name, entry_id), now)

    def acked(self, name: str, ids: tuple[EntryId, ...], now: float) -> None:
        """Check acks: they come before the replica would compare again (LINK-15)."""
        for entry_id in ids:
            since = self._unacked_since.pop((name, entry_id), now)
            if self._is_calm and now - since >= RESYNC_S:
                raise Violation(f"{name} had to ask whether {entry_id.hex()[:6]} is durable")
