"""Where the keys and values of a conversation's current context are (spec/07-host §6). Pure.

tokens   0 ........ own ........ in memory ........ stored ........ end
cached     | shared     | in a checkpoint  | to be computed
"""

from collections.abc import Sequence
from dataclasses import dataclass

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.order import SealNode


@dataclass(frozen=True, slots=True)
class Located:
    """The lengths of the prefixes of one context that are kept, in tokens."""

    own_tokens: int
    """In memory, in pages of the conversation itself."""
    memory_tokens: int
    """In memory, those of other conversations included; never fewer."""
    stored_tokens: int
    """In a checkpoint."""


@dataclass(frozen=True, slots=True)
class EntryPages:
    """The tokens of one entry, by where they are found first."""

    entry: EntryId
    cached_tokens: int
    shared_tokens: int
    stored_tokens: int
    absent_tokens: int


def entry_pages(
    tokens: Sequence[tuple[EntryId, int]], located: Located, *, shows_shared: bool
) -> list[EntryPages]:
    """Return the places of each entry's tokens; `tokens` has their numbers in context order.

    Without `shows_shared`, pages of other conversations do not count (PAGE-8).
    """
    own = located.own_tokens
    memory = located.memory_tokens if shows_shared else own
    ends = (own, memory, max(memory, located.stored_tokens))
    found, start = [], 0
    for entry, count in tokens:
        stop = start + count
        cached, shared, stored = (min(max(end - start, 0), count) for end in ends)
        found.append(EntryPages(entry, cached, shared - cached, stored - shared, count - stored))
        start = stop
    return found


def last_seal(held: Conversation) -> SealNode | None:
    """Return the last seal of the branch with the latest activity."""
    tips = held.order.tips()
    return tips[-1] if tips else None
