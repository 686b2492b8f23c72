"""The requests of a log that have neither an answer nor a refusal, in order(x).

Pure. Which of them are the latest must not depend on the order in which they came. The hosts
that the latest name are counted as requests come and go: a hub asks for them for each item of
a list, and for each member. Those without a seal are kept apart, since a Hint looks at the
latest of them alone.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, KeysView

from replica.ids import EntryId, PublicKey
from replica.log import Entry

LATEST = 256
"""Requests whose hosts are counted, the last in order(x)."""


class Unanswered:
    """Requests sorted by (lamport, id); adding or removing one costs no pass over all."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: list[tuple[int, EntryId]] = []
        self._unsealed: list[tuple[int, EntryId]] = []
        """Those of them without a counting seal."""
        self._host_of: dict[EntryId, PublicKey | None] = {}
        self._hosts: Counter[PublicKey] = Counter()

    def __len__(self) -> int:
        """Return their number."""
        return len(self._keys)

    def add(self, request: Entry, host: PublicKey | None) -> None:
        """Add a request, if it is not among them; `host` is None where its body is void."""
        if request.id in self._host_of:
            return
        insort(self._unsealed, request.order_key)
        self._add(request, host)

    def seal(self, request: Entry, host: PublicKey | None) -> None:
        """Note that a request has a seal; add it, if it is not among them."""
        if request.id not in self._host_of:
            self._add(request, host)
            return
        self._remove_unsealed(request)

    def _add(self, request: Entry, host: PublicKey | None) -> None:
        at = self._index(request)
        self._keys.insert(at, request.order_key)
        self._host_of[request.id] = host
        if at >= len(self._keys) - LATEST:
            self._count(host, 1)
            self._count_last_but_latest(-1)

    def discard(self, request: Entry) -> None:
        """Remove a request, if it is among them."""
        if request.id not in self._host_of:
            return
        at = self._index(request)
        if at >= len(self._keys) - LATEST:
            self._count_last_but_latest(1)
            self._count(self._host_of[request.id], -1)
        del self._keys[at], self._host_of[request.id]
        self._remove_unsealed(request)

    def _remove_unsealed(self, request: Entry) -> None:
        at = bisect_left(self._unsealed, request.order_key)
        if self._unsealed[at : at + 1] == [request.order_key]:
            del self._unsealed[at]

    def __contains__(self, request: EntryId) -> bool:
        """Say whether a request is among them."""
        return request in self._host_of

    def naming(self, host: PublicKey) -> Iterator[EntryId]:
        """Yield the ids of those that name a host, in order(x)."""
        host_of = self._host_of
        return (entry_id for _, entry_id in self._keys if host_of[entry_id] == host)

    def latest(self) -> Iterator[EntryId]:
        """Yield their ids, the last in order(x) first."""
        return (entry_id for _, entry_id in reversed(self._keys))

    def latest_unsealed(self) -> Iterator[EntryId]:
        """Yield the ids of those without a counting seal, the last in order(x) first."""
        return (entry_id for _, entry_id in reversed(self._unsealed))

    @property
    def hosts(self) -> KeysView[PublicKey]:
        """The hosts that the latest requests name, as they are at any time."""
        return self._hosts.keys()

    def _index(self, request: Entry) -> int:
        return bisect_left(self._keys, request.order_key)

    def _count_last_but_latest(self, change: int) -> None:
        """Count the request before the latest, which becomes one of them or is one no more."""
        if len(self._keys) > LATEST:
            _, entry_id = self._keys[-LATEST - 1]
            self._count(self._host_of[entry_id], change)

    def _count(self, host: PublicKey | None, change: int) -> None:
        if host is None:
            return
        self._hosts[host] += change
        if not self._hosts[host]:
            del self._hosts[host]
