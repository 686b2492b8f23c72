"""The links of a hub, and those that have a conversation open (spec/04-link §7).

Pure. An append concerns the links that read its conversation, so their number alone
decides its cost, not the number of all links.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NewType

from replica import limits
from replica.ids import ConversationId, PublicKey
from replica.link import Effects, Link, LinkedHost, ListingItem
from syncd.links.listing import RestOfList
from syncd.links.postponed import Postponed

LinkId = NewType("LinkId", int)

_LISTED_BYTES = 64
"""Memory of a listed conversation, whose id is that of the shelf."""


class Connected:
    """The links of a hub, with the listings and hints each peer gets."""

    def __init__(self) -> None:
        """Start without links."""
        self._links: dict[LinkId, Link] = {}
        self._readers: dict[ConversationId, dict[LinkId, PublicKey]] = {}
        self._opened: dict[LinkId, set[ConversationId]] = {}  # the inverse of _readers
        self.listed: dict[LinkId, set[ConversationId]] = {}
        """Conversations already listed to a follower."""
        self.to_list: dict[LinkId, RestOfList] = {}
        """The rest of the list of a follower that has connected."""
        self.awaited: dict[LinkId, set[ConversationId]] = {}
        """Conversations listed to a host as awaited, which it has not opened since."""
        self.postponed: Postponed[LinkId] = Postponed()
        """Links that are sent what they have credit for in later steps."""
        self.watchers: set[LinkId] = set()
        self._by_peer: dict[PublicKey, dict[LinkId, Link]] = {}
        self._of_hosts: dict[LinkId, Link] = {}

    @property
    def links(self) -> Mapping[LinkId, Link]:
        """The links, the oldest first."""
        return self._links

    def add(self, link_id: LinkId, link: Link, *, watches: bool) -> None:
        """Add a link that has no conversation open."""
        self._links[link_id] = link
        self._opened[link_id] = set()
        self.listed[link_id] = set()
        if watches:
            self.watchers.add(link_id)
        if link.peer is not None:
            self._by_peer.setdefault(link.peer, {})[link_id] = link

    def remove(self, link_id: LinkId) -> Link | None:
        """Remove a link; return None if there is none of this id."""
        link = self._links.pop(link_id, None)
        for kept in (self.listed, self.to_list, self.awaited):
            kept.pop(link_id, None)
        self.watchers.discard(link_id)
        self._of_hosts.pop(link_id, None)
        for conversation in self._opened.pop(link_id, ()):
            self._drop_reader(conversation, link_id)
            if link is not None and link.peer is not None:
                self.postponed.drop((conversation, link.peer), link_id)
        if link is not None and link.peer is not None:
            del self._by_peer[link.peer][link_id]
            if not self._by_peer[link.peer]:
                del self._by_peer[link.peer]
        return link

    def note_greeted(self, link_id: LinkId) -> None:
        """Index a link that is ready now, if it is a host's."""
        link = self._links[link_id]
        if link.host is not None:
            self._of_hosts[link_id] = link

    def followers(self, peers: Collection[PublicKey]) -> Iterator[tuple[PublicKey, list[LinkId]]]:
        """Yield those of these keys that follow on a link, with the links."""
        linked = self._by_peer
        found = (p for p in peers if p in linked) if len(peers) < len(linked) else tuple(linked)
        for peer in tuple(found):
            if peer in peers:
                yield peer, [i for i, link in linked[peer].items() if link.follows]

    def note_opened(self, link_id: LinkId, conversation: ConversationId) -> None:
        """Index a link by a conversation if it has it open; call it after each message."""
        link = self._links.get(link_id)
        if link is not None and conversation in link.channels:
            assert link.peer is not None, "links of a hub are authenticated"
            self._readers.setdefault(conversation, {})[link_id] = link.peer
            self._opened[link_id].add(conversation)
            if link_id in self.awaited:
                self.awaited[link_id].discard(conversation)

    def is_list_due(self, link_id: LinkId) -> bool:
        """Say whether a follower's list goes on now: it is not at its end, and there is credit."""
        link = self._links.get(link_id)
        return link is not None and link_id in self.to_list and link.flow.may_send()

    def list_bytes(self, link_id: LinkId) -> int:
        """Return the memory of what was listed to a follower, and of what is still to come."""
        rest, listed = self.to_list.get(link_id), self.listed.get(link_id, ())
        return _LISTED_BYTES * len(listed) + (rest.memory_bytes if rest is not None else 0)

    def note_unlisted(self, link_id: LinkId, conversations: Iterable[ConversationId]) -> None:
        """Note items that were left out of a list at their delivery: they may come again."""
        left_out = tuple(conversations)
        for kept in (self.listed, self.awaited):
            kept.get(link_id, set()).difference_update(left_out)

    def not_told(self, host: PublicKey, conversation: ConversationId) -> list[LinkId]:
        """Return the links on which a host has a conversation neither open nor as awaited."""
        return [
            link_id
            for link_id, link in self._by_peer.get(host, {}).items()
            if link.host
            and conversation not in link.channels
            and conversation not in self.awaited.get(link_id, ())
        ]

    def readers(self, conversation: ConversationId) -> list[tuple[LinkId, Link]]:
        """Return the links that have a conversation open, in the order in which they opened it."""
        found = ((i, self.reader(conversation, i)) for i, _ in self.keys_of_readers(conversation))
        return [(link_id, link) for link_id, link in found if link is not None]

    def keys_of_readers(self, conversation: ConversationId) -> list[tuple[LinkId, PublicKey]]:
        """Return the links of `readers` with their keys, and some that have closed it since.

        No link is looked at.
        """
        return list(self._readers.get(conversation, {}).items())

    def reader(self, conversation: ConversationId, link_id: LinkId) -> Link | None:
        """Return a link of `keys_of_readers`; None if it has closed the conversation since."""
        link = self._links[link_id]
        if conversation in link.channels:
            return link
        # A link closes a conversation by itself, when its peer may not read any more.
        self._opened[link_id].discard(conversation)
        self.postponed.drop((conversation, self._readers[conversation][link_id]), link_id)
        self._drop_reader(conversation, link_id)
        return None

    def catch_up(self, link_id: LinkId, conversation: ConversationId, now: float) -> bool:
        """Queue at a link what it was offered while it waited; say whether that is anything."""
        link = self._links[link_id]
        assert link.peer is not None, "links of a hub are authenticated"
        ids = self.postponed.take_offered((conversation, link.peer), link_id)
        if ids:
            link.offer(conversation, ids, now, pumps=False)
        return bool(ids)

    def catch_up_all(self, link_id: LinkId, now: float) -> None:
        """Queue at a link what it was offered while it waited; call it before its next message."""
        peer = self._links[link_id].peer
        assert peer is not None, "links of a hub are authenticated"
        for conversation in self.postponed.conversations(peer):
            self.catch_up(link_id, conversation, now)

    def list_on(self, link_id: LinkId, items: Iterable[ListingItem], now: float) -> Effects:
        """List conversations on a link; what waits for it is sent with them, in its order."""
        self.catch_up_all(link_id, now)
        return self._links[link_id].list_conversations(items)

    def _drop_reader(self, conversation: ConversationId, link_id: LinkId) -> None:
        links = self._readers[conversation]
        del links[link_id]
        if not links:
            del self._readers[conversation]

    def is_open(self, conversation: ConversationId) -> bool:
        """Say whether a link has a conversation open."""
        return bool(self.readers(conversation))

    def hosts(self, vouches_for: Callable[[PublicKey], bool]) -> tuple[LinkedHost, ...]:
        """Return the linked model hosts, one per key, as a Welcome names them (LINK-29).

        Vouched hosts come first. Within each group, hosts are in the order of their
        links, because a link's age can't be forged (DECISIONS D44).
        """
        links = (self._of_hosts[link_id] for link_id in sorted(self._of_hosts))
        infos = {link.host.key: link.host for link in links if link.host}
        hosts = [LinkedHost(info, vouches_for(key)) for key, info in infos.items()]
        hosts.sort(key=lambda host: not host.vouched)
        return tuple(hosts[: limits.HOSTS_MAX])
