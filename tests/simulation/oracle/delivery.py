"""Claims about messages of a hub: only to members, on opened conversations (LINK-8, LINK-16)."""

from antiphon.conformance.naive_members import naive_membership
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import Draft
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import messages as m
from replica.log.kinds import Kind
from syncd.hub import Hub, HubEffects, LinkId
from tests.simulation.oracle.history import Violation


class _Members:
    """The readers of one conversation, folded again when its membership changes."""

    def __init__(self, held: Conversation) -> None:
        self.held = held
        self._length = 0
        self._changes: frozenset[EntryId] = frozenset()
        self._keys: set[PublicKey] = set()

    def may_read(self, key: PublicKey) -> bool:
        entries = self.held.log.entries
        if len(entries) != self._length:
            self._length = len(entries)
            changes = frozenset(i for i, e in entries.items() if e.header.kind == Kind.MEMBER)
            if changes != self._changes or not self._keys:
                self._changes = changes
                state = naive_membership(self.held.log)
                self._keys = {k for k, roles in state.roles.items() if roles} - state.kept.keys()
        return key in self._keys and not self.held.damage.is_blocking


class Delivery:
    """The open conversations of each link, and the readers of each conversation."""

    def __init__(self) -> None:
        self._members: dict[ConversationId, _Members] = {}
        self._open: dict[LinkId, set[ConversationId]] = {}

    def connected(self, link_id: LinkId) -> None:
        """Record a new link."""
        self._open[link_id] = set()

    def received(self, link_id: LinkId, message: m.Message) -> None:
        """Record a message of a client before the hub receives it."""
        match message:
            case m.Open(conversation=conversation):
                self._open[link_id].add(conversation)
            case m.Close(conversation=conversation):
                self._open[link_id].discard(conversation)
            case _:
                pass

    def decided(self, hub: Hub, effects: HubEffects) -> None:
        """Check the effects of the hub before its log changes again."""
        for conversation in {entry.conversation for entry in effects.persist}:
            self._members_of(hub, conversation)
        for link_id, frame in effects.send:
            link = hub.links.get(link_id)
            if link is not None and link.peer is not None:
                self._check(hub, link_id, link.peer, frame.message)

    def _check(self, hub: Hub, link_id: LinkId, peer: PublicKey, message: m.Message) -> None:
        match message:
            case m.Close(conversation=conversation):
                self._open[link_id].discard(conversation)
            case m.Entries() | m.Ids() | m.Opened() | Draft():
                kind = type(message).__name__
                self._check_reader(hub, message.conversation, peer, kind)
                if message.conversation not in self._open[link_id]:
                    raise Violation(f"{kind} of a conversation that is not open goes to a client")
            case m.Fault(reason="ENTRIES_MISSING" | "LANES_DIVERGED", conversation=conversation):
                self._check_reader(hub, conversation, peer, message.reason)
            case m.Listing(items=items):
                for item in items:
                    self._check_reader(hub, item.conversation, peer, "Listing")
            case _:
                pass

    def _check_reader(
        self, hub: Hub, conversation: ConversationId, peer: PublicKey, kind: str
    ) -> None:
        known = self._members_of(hub, conversation)
        if known is None or (conversation not in hub.shelf and kind != "Listing"):
            raise Violation(f"{kind} of a conversation the hub does not hold in memory")
        if not known.may_read(peer):
            raise Violation(f"{kind} goes to a key that may not read the conversation")

    def _members_of(self, hub: Hub, conversation: ConversationId) -> _Members | None:
        """Return the members of a conversation: the last ones while it is not in memory."""
        held = hub.shelf.get(conversation)
        known = self._members.get(conversation)
        if held is not None and (known is None or known.held is not held):
            known = self._members[conversation] = _Members(held)
        return known
