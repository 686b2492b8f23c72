"""Paged keys and values in memory: one pool of slabs per numerics (spec/08-checkpoint §5). Pure.

    sequence = pool.open(ids, domain, conversation)      the longest cached prefix, shared
    pool.grow(sequence, n)                               memory for n more positions
    engine.step([Slice(sequence, ids[sequence.tokens:])])
    pool.advance(sequence, ids)                          they are computed, and cached
    pool.close(sequence)                                 it all stays cached, until evicted

One sequence is one context that is being answered. Its full slabs are shared by reference
with every other context that begins with the same tokens; its tail is its own. All that
is not in use is evicted as memory is needed. Not thread-safe: the thread that owns the
engine owns the pool.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.cached_pages import CachedPages
from model_host.kv.lineage import ID_BYTES, pack_ids, unpack_ids
from model_host.kv.lookup import SLAB_ID_BYTES, Node, chain
from model_host.kv.memory import SLAB_TOKENS, Bytes, SlabMemory
from model_host.kv.namespace import GROUP_TOKENS
from model_host.kv.prefix import PrefixIndex
from model_host.kv.sequences import KVSequence, total_groups
from model_host.kv.slabs import Slabs, groups_for


@dataclass(slots=True)
class PoolCounters:
    """Counts of events since start."""

    lookups: int = 0
    """Contexts of requests looked up; not those of replays, Warm and audits."""
    hits: int = 0
    """Of these, contexts with a cached prefix."""
    cached_tokens: int = 0
    shared_tokens: int = 0
    copies: int = 0
    """Parts of slabs copied because two contexts differ within one slab."""
    merges: int = 0
    """Full slabs freed because another one held the same tokens."""
    evictions: int = 0
    """Slabs evicted or cut for lack of memory."""

    def note_lookup(self, sequence: KVSequence) -> None:
        """Count a sequence that was opened for a request, once however often that waits."""
        self.lookups += 1
        self.hits += sequence.cached_tokens > 0
        self.cached_tokens += sequence.cached_tokens
        self.shared_tokens += sequence.shared_tokens


class PagePool:
    """The sequences that run now, and the cached pages they share."""

    def __init__(self, memory: SlabMemory, *, tail_slots: int, budget_bytes: int) -> None:
        """Use the slabs of `memory`, up to `budget_bytes`; the first `tail_slots` hold tails.

        One slab of the budget is kept for copies. Where more sequences run than there are
        slots, the other tails lie in ordinary slabs: attention then needs more calls.
        """
        self.counters = PoolCounters()
        self._memory = memory
        self._slabs = Slabs(memory, tail_slots=tail_slots, budget_bytes=budget_bytes)
        self._index = PrefixIndex(self._slabs)
        self._users, self._holds = self._index.users, self._index.holds
        self._running: dict[KVSequence, None] = {}
        self.cached = CachedPages(self._index, self._slabs)

    @property
    def used_bytes(self) -> int:
        """Return the memory in use by cached pages and running sequences."""
        return self._slabs.used_bytes

    # --- a sequence from its beginning to its end -------------------------------------

    def open(self, ids: Sequence[int], domain: bytes, conversation: bytes) -> KVSequence:
        """Return a sequence for the context `ids`, at least one token, with its cached prefix.

        The prefix never has the last token, whose logits are needed. `domain` is the digest
        of the namespace under the salt of the conversation's sharing domain, 32 bytes: pages
        of other conversations are found in the same domain only. No memory is reserved but
        for a part of a slab that is copied; where none is free, fewer tokens are found. The
        caller closes or drops the sequence.
        """
        assert ids, "at least one token is left to compute"
        user = self._users.conversation(conversation, domain)
        user.holders += 1
        self.cached.forget_oldest()
        sequence = KVSequence(user, self._slabs)
        self._running[sequence] = None
        own_tokens = self._attach(sequence, ids[:-1])
        sequence.cached_tokens = sequence.tokens
        sequence.shared_tokens = max(0, sequence.tokens - own_tokens)
        return sequence

    def grow(self, sequence: KVSequence, tokens: int) -> None:
        """Reserve memory for `tokens` more positions; evict what is not in use for it.

        Reserve a prompt whole, so that its full slabs are written where they stay, and
        generated tokens step by step. Raises CacheBudgetExceeded if the sequence would not
        fit alone, and CacheBusy if others that run, or pins, hold the memory: the caller
        waits, or closes one of them. Nothing is evicted or reserved then.
        """
        total = sequence.tokens + tokens
        groups, slabs = total_groups(total), -(-total // SLAB_TOKENS)
        if groups > self._slabs.capacity_groups or slabs > self._slabs.ordinary:
            raise CacheBudgetExceeded(
                f"A context of {total} tokens needs {groups} groups of KV memory in {slabs} slabs; "
                f"the host has {self._slabs.capacity_groups} in {self._slabs.ordinary}."
            )
        lacking = sequence.lacking(total)
        if not self._is_available(*lacking):
            raise CacheBusy
        self._evict_for(*lacking)
        sequence.reserve(total)

    def advance(self, sequence: KVSequence, ids: Sequence[int]) -> None:
        """Declare the next positions computed: those of `ids`, within the reserved ones.

        They are found by other sequences from now on. A slab that is full now becomes
        immutable, and is shared.
        """
        assert sequence.tokens + len(ids) <= sequence.reserved, "positions are reserved first"
        packed = pack_ids(ids)
        while packed:
            node = sequence.node
            if node is None or node.is_full:
                slab = sequence.slabs[sequence.tokens // SLAB_TOKENS]
                part = packed[:SLAB_ID_BYTES]
                node = sequence.node = self._index.add(sequence.user, node, slab, part)
            else:
                part = packed[: SLAB_ID_BYTES - len(node.ids)]
                self._index.extend(node, part)
            packed = packed[len(part) :]
            if node.is_full:
                self._finish_slab(sequence, node)

    def rollback(self, sequence: KVSequence, tokens: int) -> int:
        """Keep the first `tokens` positions; return how many hold keys and values now.

        Fewer than `tokens` do where a part of a full slab had to be copied and no memory
        was free. The reservation in the last slab stays. What was computed beyond a full
        slab's end is forgotten; full slabs stay cached.
        """
        assert 0 <= tokens <= sequence.tokens, "a rollback never extends"
        node = sequence.node
        if node is None or tokens == sequence.tokens:
            return tokens
        if not node.is_full and node.holds == 1 and tokens > node.start:
            self._index.cut(node, tokens - node.start)
            return tokens
        ids = b"".join(each.ids for each in chain(node))[: tokens * ID_BYTES]
        self._detach(sequence, keeps_tail=False)
        self._attach(sequence, unpack_ids(ids))
        return sequence.tokens

    def close(self, sequence: KVSequence) -> None:
        """End a sequence; its pages stay cached until they are evicted.

        This is how to preempt one as well: memory is taken from its end, as far as needed.
        """
        self._detach(sequence, keeps_tail=True)
        self._end(sequence)

    def drop(self, sequence: KVSequence) -> None:
        """End a sequence, and evict the pages that no other context of anyone uses."""
        node = sequence.node
        self._detach(sequence, keeps_tail=False)
        while node is not None:
            if node.is_cached:
                if node.holds or node.children or len(node.users) > 1:
                    break
                self._index.evict(node)
            node = node.parent
        self._end(sequence)

    @contextmanager
    def restoring(self, sequence: KVSequence, ids: Sequence[int]) -> Iterator["Staging"]:
        """Extend a sequence to the context `ids` with stored bytes, written within the block.

        They are published together as the block ends. If it raises, or leaves positions out,
        none of them is kept. Whole groups are restored, so the sequence gives an incomplete
        one up first. Raises CacheBudgetExceeded or CacheBusy as `grow` does.
        """
        assert len(ids) > sequence.tokens, "restoring extends a sequence"
        start = self.rollback(sequence, sequence.tokens // GROUP_TOKENS * GROUP_TOKENS)
        self.grow(sequence, len(ids) - start)
        staging = Staging(self._memory, sequence, len(ids))
        try:
            yield staging
            assert staging.tokens == len(ids), "all positions are restored, or none"
        except BaseException:
            sequence.trim()
            raise
        self.advance(sequence, ids[start:])

    # --- attaching and detaching ------------------------------------------------------

    def _attach(self, sequence: KVSequence, ids: Sequence[int]) -> int:
        """Give a sequence without slabs the longest cached prefix of `ids`.

        Returns the number of tokens that the conversation's own pages hold.
        """
        found, own = self._index.find(sequence.user, ids)
        if found.node is None or found.common == SLAB_TOKENS:
            self._follow(sequence, found.node)
        else:
            self._attach_part(sequence, found.node, found.common)
        return own.tokens

    def _follow(self, sequence: KVSequence, node: Node | None) -> None:
        """Share the full slabs of a chain."""
        self._holds.hold(node)
        self._users.use(node, sequence.user)
        sequence.follow(node)

    def _attach_part(self, sequence: KVSequence, source: Node, tokens: int) -> None:
        """Share the chain before `source`, and continue from its first `tokens` tokens.

        They are copied, and the source stays, since another branch may need it. If it ends
        there, and is the conversation's own, it is continued in place. Where there is no
        memory for both, the conversation's own is cut.
        """
        is_own = not (source.holds or source.children) and [*source.users] == [sequence.user]
        self._holds.hold(source)
        if is_own and tokens == source.tokens:
            self._continue(sequence, source)
        elif self._is_available(groups_for(tokens), 1):
            self._evict_for(groups_for(tokens), 1)
            self._follow(sequence, source.parent)
            self._copy(sequence, source, tokens)
        elif is_own:
            self._index.cut(source, tokens)
            self._slabs.cut(source.slab, tokens)
            self.counters.evictions += 1
            self._continue(sequence, source)
        else:
            self._follow(sequence, source.parent)
        self._holds.release(source)

    def _continue(self, sequence: KVSequence, tail: Node) -> None:
        """Let a sequence write the slab in which its conversation's last one ended."""
        self._follow(sequence, tail)
        sequence.move_in()

    def _copy(self, sequence: KVSequence, source: Node, tokens: int) -> None:
        """Begin a sequence's tail with the first tokens of another slab."""
        sequence.reserve(sequence.tokens + tokens)
        slab = sequence.slabs[-1]
        self._memory.copy(source.slab, slab, tokens)
        packed = bytes(source.ids[: tokens * ID_BYTES])
        sequence.node = self._index.add(sequence.user, sequence.node, slab, packed)
        self.counters.copies += 1

    def _finish_slab(self, sequence: KVSequence, node: Node) -> None:
        """Move a full slab to where it stays, or use another that holds the same tokens."""
        equal = self._users.equal_of(node)
        if equal is None or node.holds > 1:
            if node.index == len(sequence.slabs) - 1:
                sequence.move_out()
            self._index.index(node)
            return
        if node.index == len(sequence.slabs) - 1:
            sequence.free_destination()
        self._holds.release(node)
        self._index.evict(node)
        self._follow(sequence, equal)
        self.counters.merges += 1

    def _detach(self, sequence: KVSequence, *, keeps_tail: bool) -> None:
        """Take all slabs from a sequence; its full ones stay cached, its tail if asked."""
        sequence.trim()
        node = sequence.node
        if node is not None and not node.is_full:
            covering = self._index.covering(node) if keeps_tail else None
            is_kept = node.holds > 1 or (keeps_tail and covering is None)
            if is_kept:
                sequence.move_out()
            self._holds.hold(covering)
            self._holds.release(node)
            if not is_kept:
                self._index.evict(node)
                sequence.free_destination()
            self._holds.release(covering)
        else:
            self._holds.release(node)
        sequence.clear()

    def _end(self, sequence: KVSequence) -> None:
        del self._running[sequence]
        sequence.user.holders -= 1
        self._users.drop_if_unused(sequence.user)

    # --- memory -----------------------------------------------------------------------

    def _is_available(self, groups: int, slabs: int) -> bool:
        """Say whether so much is free, or can be freed by evicting idle nodes."""
        return (
            groups <= self._slabs.free_groups + self._holds.idle_groups
            and slabs <= self._slabs.free_slabs + self._holds.idle_slabs
        )

    def _evict_for(self, groups: int, slabs: int) -> None:
        """Evict the least recently used ends of chains until so much is free."""
        while self._slabs.free_groups < groups or self._slabs.free_slabs < slabs:
            self._index.evict_oldest()
            self.counters.evictions += 1

    def check_integrity(self) -> None:
        """Check all invariants of the pool, its slabs and its index. Raises AssertionError."""
        self._slabs.check_integrity()
        self._index.check_integrity()
        held = Counter[Node]()
        for sequence in self._running:
            sequence.check_integrity()
            held.update(chain(sequence.node))
        owned = Counter(node.slab for node in self._index)
        for sequence in self._running:
            owned.update(sequence.own_slabs())
        for node in self._index:
            assert node.holds == held[node] + node.pins, f"slab {node.slab}: {node.holds} holds"
            if not node.holds:
                groups = self._slabs.groups(node.slab)
                assert groups == groups_for(node.tokens), f"slab {node.slab}: {groups} groups"
        assert set(owned.values()) <= {1}, f"slabs with two owners: {owned.most_common(3)}"
        assert owned.keys() == self._slabs.in_use(), "slabs in use that nothing owns"


class Staging:
    """Positions of a running sequence that are being restored, and not yet valid."""

    def __init__(self, memory: SlabMemory, sequence: KVSequence, stop: int) -> None:
        """Start after the sequence's tokens; `stop` positions are reserved."""
        self.tokens = sequence.tokens
        """Position up to which bytes are written."""
        self._memory = memory
        self._slabs = sequence.slabs
        self._stop = stop

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""
        return self._memory.bytes_per_token

    def write(self, stop: int, payload: Bytes) -> None:
        """Write the positions from `tokens` to `stop`, which lie in one slab."""
        slab, start = divmod(self.tokens, SLAB_TOKENS)
        count = stop - self.tokens
        assert 0 < count <= SLAB_TOKENS - start, "a group lies in one slab"
        assert stop <= self._stop, "only reserved positions are written"
        self._memory.write(self._slabs[slab], start, start + count, payload)
        self.tokens = stop
