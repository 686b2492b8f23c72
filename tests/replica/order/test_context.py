"""The digest of a context chains its entries, however the chain is divided into seals."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from replica.conversation.conversation import Conversation
from replica.ids import Digest, EntryId
from replica.log.entry import Entry
from replica.log.log import Log
from replica.order.context import context_digest
from replica.order.node import Coverage, SealNode
from tests.support.stories import seal_of
from tests.support.writers import Writer, said

ADA = Writer(1)
GENESIS = ADA.genesis()
LOG = Log(GENESIS.conversation)
ENTRIES = [GENESIS]
for number in range(5):
    ENTRIES.append(ADA.write(LOG.conversation, said(str(number)), parents=ENTRIES[-1:]))
for entry in ENTRIES:
    LOG.admit(entry)
TAG = b"antiphon/v1/context"
EMPTY = hashlib.sha256(struct.pack("<Q", len(TAG)) + TAG + struct.pack("<Q", 0)).digest()

entry_lists = st.lists(st.sampled_from(ENTRIES), max_size=6)


def by_hand(digest: bytes, entries: Sequence[Entry]) -> bytes:
    for entry in entries:
        assert entry.body is not None
        digest = hashlib.sha256(digest + entry.id + hashlib.sha256(entry.body).digest()).digest()
    return digest


def ids(entries: Sequence[Entry]) -> tuple[EntryId, ...]:
    return tuple(entry.id for entry in entries)


def node_with(digest: Digest) -> SealNode:
    """Return a counting seal whose context has this digest."""
    held = Conversation.restore(LOG.conversation, ENTRIES)
    seal = seal_of(held, ENTRIES[1].id, ids(ENTRIES), None, digest=digest)
    return SealNode(ENTRIES[1].id, seal, ADA.public, None, 0, Coverage())


@given(entry_lists)
def test_the_digest_is_the_chain_of_the_chapter(entries: list[Entry]) -> None:
    assert context_digest(LOG, None, ids(entries)) == by_hand(EMPTY, entries)


@given(entry_lists, entry_lists)
def test_a_seal_goes_on_where_the_one_before_it_ended(
    before: list[Entry], after: list[Entry]
) -> None:
    parent = node_with(context_digest(LOG, None, ids(before)))
    whole = context_digest(LOG, None, ids([*before, *after]))
    assert context_digest(LOG, parent, ids(after)) == whole


def test_a_withheld_body_changes_nothing() -> None:
    bare = Log(LOG.conversation)
    for entry in ENTRIES:
        withheld = entry is ENTRIES[3]
        bare.admit(replace(entry, body=None) if withheld else entry, verified=True)
    assert context_digest(bare, None, ids(ENTRIES)) == context_digest(LOG, None, ids(ENTRIES))
