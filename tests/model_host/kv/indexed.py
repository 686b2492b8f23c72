"""A prefix index without a pool: contexts of consecutive ids, added whole."""

from model_host.kv.lineage import pack_ids
from model_host.kv.lookup import Node
from model_host.kv.prefix import PrefixIndex
from model_host.kv.slabs import Slabs
from tests.model_host.kv.paged import SLAB_BYTES, NumpyMemory

D, E = b"d" * 32, b"e" * 32
A, B, C = b"a", b"b", b"c"


class Indexed:
    """An index whose slabs are written by nobody, with contexts of consecutive ids."""

    def __init__(self, slabs: int = 40) -> None:
        memory = NumpyMemory(slabs)
        self.slabs = Slabs(memory, tail_slots=0, budget_bytes=slabs * SLAB_BYTES)
        self.index = PrefixIndex(self.slabs)

    def add(self, key: bytes, count: int, domain: bytes = D, parent: Node | None = None) -> Node:
        """Add a context of ids 0, 1, … after `parent`, and let go of it; return its last node."""
        user = self.index.users.conversation(key, domain)
        node = parent
        self.index.holds.hold(parent)
        self.index.users.use(parent, user)
        for start in range(0 if parent is None else parent.start + 512, count, 512):
            ids = range(start, min(start + 512, count))
            slab = self.slabs.allocate(None)
            self.slabs.reserve(slab, len(ids))
            node = self.index.add(user, node, slab, pack_ids(ids))
            self.index.index(node)
        assert node is not None
        self.index.holds.release(node)
        self.index.check_integrity()
        return node

    def found(self, key: bytes, count: int, domain: bytes = D) -> tuple[int, int]:
        """Return the tokens found of a context of `count` ids: in all, and of its own pages."""
        user = self.index.users.conversation(key, domain)
        found, own = self.index.find(user, range(count))
        self.index.users.drop_if_unused(user)
        self.index.check_integrity()
        return found.tokens, own.tokens
