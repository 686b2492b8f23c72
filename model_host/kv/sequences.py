"""A running sequence: the slabs of its chain, and those it writes (spec/08-checkpoint §5). Pure.

    slabs      [ 17 | 18 | 19 | 3 ]
    positions   0 … 1535        1536 … 2047
                shared, full    tail, in slot 3; slab 20 is kept as its destination

The tail is the last slab. It lies in a slot while slots are free, so that one attention
call serves the tails of all running sequences; else in an ordinary slab, which is as
correct and only slower. A tail in a slot has a destination, next to the slab before it: no
number has to be found when it is full or when the sequence ends.
"""

from model_host.kv.lookup import Conversation, Node, chain
from model_host.kv.memory import SLAB_TOKENS
from model_host.kv.namespace import GROUP_TOKENS
from model_host.kv.slabs import SLAB_GROUPS, Slabs, groups_for


class KVSequence:
    """A PageTable (model_host/kv/memory.py) of one running sequence.

    The pool changes it; everyone else reads it. Memory is reserved ahead of the tokens: a
    step writes the positions from `tokens` up to `reserved`.
    """

    def __init__(self, user: Conversation, slabs: Slabs) -> None:
        """Start without slabs."""
        self.slabs: list[int] = []
        """Slab numbers, in the order of positions."""
        self.node: Node | None = None
        """The last node of its chain; while that is not full, the sequence writes it."""
        self.user = user
        self.cached_tokens = 0
        """Tokens found in memory when the sequence was opened."""
        self.shared_tokens = 0
        """Of these, tokens that only pages of other conversations held."""
        self._slabs = slabs
        self._destination: int | None = None

    @property
    def tokens(self) -> int:
        """Return the number of positions that hold keys and values."""
        return 0 if self.node is None else self.node.start + self.node.tokens

    @property
    def reserved(self) -> int:
        """Return the number of positions for which memory is reserved."""
        if not self.slabs:
            return 0
        groups = self._slabs.groups(self.slabs[-1])
        return (len(self.slabs) - 1) * SLAB_TOKENS + groups * GROUP_TOKENS

    @property
    def own_tokens(self) -> int:
        """Return the cached tokens that the conversation's own pages held.

        Only these are stated in the log and to members; the others count as prefilled
        there (PAGE-8).
        """
        return self.cached_tokens - self.shared_tokens

    # --- slabs ------------------------------------------------------------------------

    def lacking(self, tokens: int) -> tuple[int, int]:
        """Return the groups and slabs to be allocated before `tokens` positions are reserved."""
        slabs = -(-tokens // SLAB_TOKENS) - len(self.slabs)
        if slabs < 0:
            return 0, 0
        held = len(self.slabs) * SLAB_GROUPS
        if self.slabs:
            held += self._slabs.groups(self.slabs[-1]) - SLAB_GROUPS
        return max(0, total_groups(tokens) - held), slabs

    def reserve(self, tokens: int) -> None:
        """Reserve the first `tokens` positions; the caller has made sure that memory is free."""
        count = -(-tokens // SLAB_TOKENS)
        while len(self.slabs) < count:
            if self.slabs:
                self.move_out()
                self._slabs.reserve(self.slabs[-1], SLAB_TOKENS)
            is_last = len(self.slabs) + 1 == count
            # One that is filled at once stays where it is written: to move it costs a copy.
            self._append_slab(is_tail=is_last and tokens % SLAB_TOKENS != 0)
        if 0 < count == len(self.slabs):
            self._slabs.reserve(self.slabs[-1], tokens - (count - 1) * SLAB_TOKENS)

    def _append_slab(self, *, is_tail: bool) -> None:
        slab = self._slabs.allocate(self.slabs[-1] if self.slabs else None)
        slot = self._slabs.allocate_slot() if is_tail else None
        if slot is not None:
            self._destination, slab = slab, slot
        self.slabs.append(slab)

    def move_in(self) -> None:
        """Move the tail from an ordinary slab to a slot, if one is free."""
        slot = self._slabs.allocate_slot()
        if slot is not None:
            self._destination = self.slabs[-1]
            self._move_tail(slot)

    def move_out(self) -> None:
        """Move the tail from its slot to its destination, if it is in a slot."""
        if self._destination is not None:
            slot, target = self.slabs[-1], self._destination
            self._destination = None
            self._move_tail(target)
            self._slabs.release(slot)

    def _move_tail(self, target: int) -> None:
        """Move the last slab; the node that it belongs to moves along."""
        source, index = self.slabs[-1], len(self.slabs) - 1
        tokens = max(0, self.tokens - index * SLAB_TOKENS)
        self._slabs.move(source, target, tokens)
        self.slabs[-1] = target
        if tokens and self.node is not None:
            self.node.slab = target

    def trim(self) -> None:
        """Zero all memory beyond the tokens, and give it back."""
        while (len(self.slabs) - 1) * SLAB_TOKENS >= self.tokens and self.slabs:
            self.pop_slab()
        if self.slabs:
            self._slabs.cut(self.slabs[-1], self.tokens - (len(self.slabs) - 1) * SLAB_TOKENS)

    def pop_slab(self) -> None:
        """Free the last slab."""
        self._slabs.release(self.slabs.pop())
        self.free_destination()

    def free_destination(self) -> None:
        """Free the slab kept for the tail, if there is one."""
        if self._destination is not None:
            self._slabs.release(self._destination)
            self._destination = None

    def follow(self, node: Node | None) -> None:
        """Make a chain the sequence's own, with its slabs in place of those it had there."""
        self.node = node
        slabs = [each.slab for each in chain(node)]
        self.slabs[: len(slabs)] = slabs

    def clear(self) -> None:
        """Forget the chain and its slabs, which the caller has released."""
        assert self._destination is None, "a tail leaves its slot first"
        self.node = None
        self.slabs.clear()

    def own_slabs(self) -> list[int]:
        """Return the slabs that no node has yet, and the tail's destination."""
        own = self.slabs[len(chain(self.node)) :]
        return own if self._destination is None else [*own, self._destination]

    def check_integrity(self) -> None:
        """Check the slabs against the chain. Raises AssertionError."""
        nodes = chain(self.node)
        assert self.slabs[: len(nodes)] == [node.slab for node in nodes], "slabs of the chain"
        assert self.tokens <= self.reserved, f"{self.tokens} of {self.reserved} positions"
        assert all(node.is_full for node in nodes[:-1]), "a slab before the last is not full"
        assert all(self.user in node.users for node in nodes), "the chain is not the user's"
        assert not nodes or nodes[-1].is_full or len(nodes[-1].users) == 1, "a tail has one user"
        in_slots = [self._slabs.is_slot(slab) for slab in self.slabs]
        assert not any(in_slots[:-1]), "a slab before the last is in a slot"
        has_slot = bool(in_slots and in_slots[-1])
        assert has_slot == (self._destination is not None), "a slot without a destination"


def total_groups(tokens: int) -> int:
    """Return the number of 64-token groups of a context of `tokens` tokens."""
    whole, rest = divmod(tokens, SLAB_TOKENS)
    return whole * SLAB_GROUPS + groups_for(rest)
