"""The hub: links and conversations in, effects out (spec/04-link §7).

Pure. One Link per connected replica, all over one shelf. The driver performs
HubEffects strictly in the order they were returned, many at a time if it
likes: first everything to persist, in one transaction, then everything to
send. That order is what makes an ack, and every entry passed on, durable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from replica import limits
from replica.conversation import Conversation, Shelf
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import (
    Effects,
    Entries,
    Fault,
    Frame,
    Link,
    LinkedHost,
    Message,
    Phase,
    Side,
    Welcome,
    conversation_of,
)
from replica.log import NOTHING_LOST, Entry, Lost
from replica.refusals import ConversationDeleted
from syncd import queries
from syncd.fan_out import Connected, FanOut, HubEffects, LinkId
from syncd.policy import Policy
from syncd.queries import Right


class Hub:
    """Everything a hub knows, without a socket, a clock or a disk."""

    def __init__(self, key: PublicKey, policy: Policy) -> None:
        """Start with an empty shelf and no links."""
        self.key = key
        self.policy = policy
        self._shelf: Shelf = {}
        self._deleted: set[ConversationId] = set()
        self._connected = Connected()
        self._next_link = 1

    # --- conversations ------------------------------------------------------

    @property
    def shelf(self) -> Mapping[ConversationId, Conversation]:
        """The conversations in memory, to look at; links extend them."""
        return self._shelf

    def load(
        self, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> None:
        """Put a stored conversation on the shelf, in place of what was there."""
        self._shelf[conversation] = Conversation.restore(conversation, entries, lost)

    def forget(self, conversation: ConversationId, fault: Fault | None = None) -> HubEffects:
        """Take a conversation off the shelf and all links; the store is the driver's."""
        out = FanOut(self._connected, self._shelf, 0.0)
        self._shelf.pop(conversation, None)
        for link_id, link in self.links.items():
            out.add(link_id, link.leave(conversation, fault))
        return out.build()

    def permitted(
        self, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        """Return a conversation that `peer` may use so.

        Raises ConversationDeleted, ConversationUnknown, NotAllowed.
        """
        gone = self._refusal(conversation)
        if gone is not None:
            raise gone
        return queries.permitted(self._shelf.get(conversation), peer, right)

    # --- deletion -------------------------------------------------------------

    @property
    def deleted(self) -> tuple[ConversationId, ...]:
        """The conversations deleted here, ascending: the driver keeps them for the next start."""
        return tuple(sorted(self._deleted))

    def is_deleted(self, conversation: ConversationId) -> bool:
        """Say whether an owner deleted the conversation here."""
        return conversation in self._deleted

    def delete(self, conversation: ConversationId) -> HubEffects:
        """Forget a conversation for good and tell its links; it is taken no more."""
        self._deleted.add(conversation)
        return self.forget(conversation, Fault.of(ConversationDeleted(), conversation))

    def undelete(self, conversation: ConversationId) -> None:
        """Take a deletion back that could not be made durable."""
        self._deleted.discard(conversation)

    def _refusal(self, conversation: ConversationId | None) -> ConversationDeleted | None:
        """Return what anyone is told who names a deleted conversation (LINK-9)."""
        return ConversationDeleted() if conversation in self._deleted else None

    # --- links ----------------------------------------------------------------

    @property
    def links(self) -> Mapping[LinkId, Link]:
        """The links there are now, the oldest first."""
        return self._connected.links

    def hosts(self) -> tuple[LinkedHost, ...]:
        """Return the model hosts linked now, one per key, as a Welcome names them (LINK-29).

        Links stand in the order they came, and so do the hosts of each group:
        unlike a key, a link's age can't be made up.
        """
        infos = {link.host.key: link.host for link in self.links.values() if link.host}
        hosts = [LinkedHost(info, self.policy.vouches_for(key)) for key, info in infos.items()]
        hosts.sort(key=lambda host: not host.vouched)
        return tuple(hosts[: limits.HOSTS_MAX])

    def connect(self, peer: PublicKey, now: float, *, watches: bool = False) -> LinkId:
        """Take a new link of an authenticated key; a watcher gets a Hint with what it is sent."""
        link_id = LinkId(self._next_link)
        self._next_link += 1
        self._connected.links[link_id] = self._new_link(peer, now)
        self._connected.listed[link_id] = set()
        if watches:
            self._connected.watchers.add(link_id)
        return link_id

    def _new_link(self, peer: PublicKey, now: float, *, is_greeted: bool = False) -> Link:
        return Link(
            Side.HUB,
            key=self.key,
            peer=peer,
            shelf=self._shelf,
            now=now,
            may_create=self.policy.may_create,
            entries_max=self.policy.entries_max,
            is_greeted=is_greeted,
        )

    def disconnect(self, link_id: LinkId) -> None:
        """Forget a link whose stream is gone."""
        link = self._connected.links.pop(link_id, None)
        self._connected.listed.pop(link_id, None)
        self._connected.watchers.discard(link_id)
        if link is not None:
            link.handle_disconnect()

    def receive(
        self, link_id: LinkId, message: Message, now: float, frame_bytes: int = 0
    ) -> HubEffects:
        """Take one message from a link."""
        link = self.links.get(link_id)
        if link is None:
            return HubEffects()
        brought = [e.id for e in message.entries] if isinstance(message, Entries) else ()
        out = FanOut(self._connected, self._shelf, now, brought)
        conversation = conversation_of(message)
        gone = self._refusal(conversation)
        if gone is not None:
            out.send(link_id, Fault.of(gone, conversation))
            return out.build()
        was_ready, waited_bytes = link.phase is Phase.READY, link.intake.pending_bytes
        effects = link.receive(message, now, frame_bytes)
        if not was_ready and link.phase is Phase.READY:
            out.add(link_id, self._with_hosts(effects))
            out.list_all(link_id)
        else:
            out.add(link_id, effects)
        if link.intake.pending_bytes > waited_bytes:
            self._bound_pending(out)
        return out.build()

    def _with_hosts(self, effects: Effects) -> Effects:
        """Name the hosts in a Welcome; only the hub knows which are linked."""
        return replace(effects, send=tuple(self._named(frame) for frame in effects.send))

    def _named(self, frame: Frame) -> Frame:
        if not isinstance(frame.message, Welcome):
            return frame
        return Frame.of(replace(frame.message, hosts=self.hosts()), "to_client")

    def _bound_pending(self, out: FanOut) -> None:
        """Where all links together keep too much waiting, the one that keeps most gives it up."""
        intakes = {link_id: link.intake for link_id, link in self.links.items()}
        if sum(i.pending_bytes for i in intakes.values()) <= self.policy.pending_bytes_max:
            return
        for intake in intakes.values():
            intake.release()
        while sum(i.pending_bytes for i in intakes.values()) > self.policy.pending_bytes_max:
            link_id = max(intakes, key=lambda link_id: intakes[link_id].pending_bytes)
            out.add(link_id, self.links[link_id].drop_pending())

    def push(
        self, peer: PublicKey, message: Entries, now: float
    ) -> tuple[HubEffects, dict[EntryId, Fault | None]]:
        """Append without a link; return per entry its fault, None once the effects are done.

        What must wait for missing entries is refused: without a link nobody
        would pay for its keep.
        """
        gone = self._refusal(message.conversation)
        if gone is not None:
            return HubEffects(), dict.fromkeys(message.ids, Fault.of(gone, message.conversation))
        out = FanOut(self._connected, self._shelf, now)
        link = self._new_link(peer, now, is_greeted=True)
        effects = link.receive(message, now)
        out.add(None, effects)
        link.handle_disconnect()  # what waits for others must not stay without a payer
        faults = [f.message for f in effects.send if isinstance(f.message, Fault)]
        held = self._shelf.get(message.conversation)
        return out.build(), queries.outcomes(message.ids, faults, held)

    def handle_deadlines(self, now: float) -> HubEffects:
        """Let every link do what is due."""
        out = FanOut(self._connected, self._shelf, now)
        for link_id, link in tuple(self.links.items()):
            out.add(link_id, link.handle_deadline(now))
        return out.build()
