"""The contexts rendered last, by the seal each belongs to (spec/07-host §2). Pure.

A seal's context never changes, so a kept one is valid for ever. One that was let go is
rendered again from the log.
"""

from collections import OrderedDict

from model_host.rendering.render import Context
from replica.ids import EntryId

CONTEXTS_BYTES_MAX = 64 * 1024 * 1024
"""Memory of the contexts kept: some 1.6 million tokens."""
_CONTEXT_BYTES = 1024
"""Memory of a context without its tokens, about."""


class Contexts:
    """The contexts used last; not thread-safe, while each context is."""

    def __init__(self, bytes_max: int = CONTEXTS_BYTES_MAX) -> None:
        """Keep contexts of `bytes_max` in all."""
        self._bytes_max = bytes_max
        self._kept: OrderedDict[EntryId, Context] = OrderedDict()
        self.size_bytes = 0

    def get(self, seal: EntryId) -> Context | None:
        """Return the context up to a seal, None if it is not kept."""
        context = self._kept.get(seal)
        if context is not None:
            self._kept.move_to_end(seal)
        return context

    def keep(self, seal: EntryId, context: Context) -> None:
        """Keep the context up to a seal; the ones used longest ago make room."""
        if seal in self._kept:
            return
        self._kept[seal] = context
        self.size_bytes += _CONTEXT_BYTES + context.size_bytes
        while self.size_bytes > self._bytes_max:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= _CONTEXT_BYTES + oldest.size_bytes
