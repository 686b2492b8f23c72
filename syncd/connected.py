"""The links of a hub, and those that have a conversation open (spec/04-link §7).

Pure. An append concerns the links that read its conversation, so their number alone
decides its cost, not the number of all links.
"""

from collections.abc import Callable, Mapping
from typing import NewType

from replica import limits
from replica.ids import ConversationId, PublicKey
from replica.link import Link, LinkedHost

LinkId = NewType("LinkId", int)


class Connected:
    """The links of a hub, with the listings and hints each peer gets."""

    def __init__(self) -> None:
        """Start without links."""
        self._links: dict[LinkId, Link] = {}
        self._readers: dict[ConversationId, dict[LinkId, None]] = {}
        self._opened: dict[LinkId, set[ConversationId]] = {}  # the inverse of _readers
        self.listed: dict[LinkId, set[ConversationId]] = {}
        """Conversations already listed to a follower."""
        self.watchers: set[LinkId] = set()

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

    def remove(self, link_id: LinkId) -> Link | None:
        """Remove a link; return None if there is none of this id."""
        link = self._links.pop(link_id, None)
        self.listed.pop(link_id, None)
        self.watchers.discard(link_id)
        for conversation in self._opened.pop(link_id, ()):
            self._drop_reader(conversation, link_id)
        return link

    def note_opened(self, link_id: LinkId, conversation: ConversationId) -> None:
        """Index a link by a conversation if it has it open; call it after each message."""
        link = self._links.get(link_id)
        if link is not None and conversation in link.channels:
            self._readers.setdefault(conversation, {})[link_id] = None
            self._opened[link_id].add(conversation)

    def readers(self, conversation: ConversationId) -> list[tuple[LinkId, Link]]:
        """Return the links that have a conversation open, in the order in which they opened it."""
        found = []
        for link_id in tuple(self._readers.get(conversation, ())):
            link = self._links[link_id]
            if conversation in link.channels:
                found.append((link_id, link))
            else:  # a link closes a conversation by itself, when its peer may not read any more
                self._opened[link_id].discard(conversation)
                self._drop_reader(conversation, link_id)
        return found

    def _drop_reader(self, conversation: ConversationId, link_id: LinkId) -> None:
        links = self._readers[conversation]
        del links[link_id]
        if not links:
            del self._readers[conversation]

    @property
    def open_conversations(self) -> frozenset[ConversationId]:
        """The conversations that are open on a link."""
        return frozenset(one for one in tuple(self._readers) if self.readers(one))

    def hosts(self, vouches_for: Callable[[PublicKey], bool]) -> tuple[LinkedHost, ...]:
        """Return the linked model hosts, one per key, as a Welcome names them (LINK-29).

        Vouched hosts come first. Within each group, hosts are in the order of their
        links, because a link's age can't be forged (DECISIONS D44).
        """
        infos = {link.host.key: link.host for link in self._links.values() if link.host}
        hosts = [LinkedHost(info, vouches_for(key)) for key, info in infos.items()]
        hosts.sort(key=lambda host: not host.vouched)
        return tuple(hosts[: limits.HOSTS_MAX])
