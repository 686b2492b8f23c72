"""The digest of a seal's context, which any client can compute (spec/03-order §3)."""

import hashlib
from collections.abc import Iterable

from replica.ids import CONTEXT_TAG, Digest, EntryId, tagged_sha256
from replica.log import Log
from replica.order.node import SealNode

_EMPTY_DIGEST = tagged_sha256(CONTEXT_TAG, b"")


def context_digest(log: Log, parent: SealNode | None, entries: Iterable[EntryId]) -> Digest:
    """Extend the digest of `parent`'s context by `entries`: previous ‖ id ‖ body digest."""
    digest = parent.seal.context_digest if parent is not None else _EMPTY_DIGEST
    for entry_id in log.meter.turns(entries):
        stated = log.entries[entry_id].header.body_digest
        digest = Digest(hashlib.sha256(digest + entry_id + stated).digest())
    return digest
