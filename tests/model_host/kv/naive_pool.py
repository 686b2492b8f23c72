"""The twin of a PagePool: it keeps all contexts as lists of ids, and compares them one by one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Ids = tuple[int, ...]


@dataclass
class NaiveConversation:
    domain: bytes
    contexts: set[Ids] = field(default_factory=set)


@dataclass
class NaivePool:
    """Never forgets but when asked."""

    conversations: dict[bytes, NaiveConversation] = field(default_factory=dict)
    running: dict[object, tuple[bytes, Ids]] = field(default_factory=dict)

    def find(self, ids: Ids, domain: bytes, conversation: bytes) -> tuple[int, int]:
        """Return the tokens found in all pages of the domain, and in the conversation's own."""
        mine = self.conversations.setdefault(conversation, NaiveConversation(domain))
        mine.domain = domain
        own = [*mine.contexts, *self._running_of([conversation])]
        same = [key for key, each in self.conversations.items() if each.domain == domain]
        others = [context for key in same for context in self.conversations[key].contexts]
        others += self._running_of(same)
        most = max((common(ids[:-1], other) for other in others), default=0)
        return most, max((common(ids[:-1], other) for other in own), default=0)

    def _running_of(self, conversations: Iterable[bytes]) -> list[Ids]:
        wanted = set(conversations)
        return [ids for conversation, ids in self.running.values() if conversation in wanted]

    def keep(self, conversation: bytes, ids: Ids) -> None:
        self.conversations[conversation].contexts.add(ids)

    def close(self, sequence: object) -> None:
        self.keep(*self.running.pop(sequence))

    def evict(self, conversation: bytes) -> None:
        self.conversations.pop(conversation, None)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
