"""Derived state as bytes: caches, namespaces, checkpoints (spec/08)."""

from model_host.kv.archive import (
    ARCHIVE_CHUNK_BYTES,
    ARCHIVE_HEADER_BYTES,
    ARCHIVE_SALT_BYTES,
    Archive,
    archive_bytes,
    conversation_of,
    encrypt_archive,
)
from model_host.kv.checkpoint import (
    MANIFEST_BYTES_MAX,
    Manifest,
    Piece,
    decode_manifest,
    encode_manifest,
    piece_bounds,
    stored_pieces,
    usable_tokens,
)
from model_host.kv.domain import domain_salt
from model_host.kv.lineage import Lineage, common_tokens
from model_host.kv.losses import Losses
from model_host.kv.memory import SLAB_TOKENS, Bytes, PageTable, SlabMemory
from model_host.kv.namespace import GROUP_TOKENS, PAGE_LAYOUT, Namespace, canonical_json
from model_host.kv.page_map import Located, entry_pages, last_seal
from model_host.kv.page_pool import PagePool, PoolCounters
from model_host.kv.page_store import PageSource, PageStore, PageTarget, StoreCounters, Stored
from model_host.kv.restore_cost import RestoreCost
from model_host.kv.sequences import KVSequence
from model_host.kv.traveling import Offered, offered, surplus, usable
from model_host.kv.unpinned import UnpinnedSource

__all__ = [
    "ARCHIVE_CHUNK_BYTES",
    "ARCHIVE_HEADER_BYTES",
    "ARCHIVE_SALT_BYTES",
    "GROUP_TOKENS",
    "MANIFEST_BYTES_MAX",
    "PAGE_LAYOUT",
    "SLAB_TOKENS",
    "Archive",
    "Bytes",
    "KVSequence",
    "Lineage",
    "Located",
    "Losses",
    "Manifest",
    "Namespace",
    "Offered",
    "PagePool",
    "PageSource",
    "PageStore",
    "PageTable",
    "PageTarget",
    "Piece",
    "PoolCounters",
    "RestoreCost",
    "SlabMemory",
    "StoreCounters",
    "Stored",
    "UnpinnedSource",
    "archive_bytes",
    "canonical_json",
    "common_tokens",
    "conversation_of",
    "decode_manifest",
    "domain_salt",
    "encode_manifest",
    "encrypt_archive",
    "entry_pages",
    "last_seal",
    "offered",
    "piece_bounds",
    "stored_pieces",
    "surplus",
    "usable",
    "usable_tokens",
]
