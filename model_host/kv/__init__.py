"""Derived state as bytes: caches, namespaces, checkpoints (spec/08)."""

from model_host.kv.cache import KVCache
from model_host.kv.checkpoint import (
    Group,
    Lineage,
    Manifest,
    decode_manifest,
    encode_manifest,
    group_bounds,
    usable_tokens,
)
from model_host.kv.memory import SLAB_TOKENS, Bytes, PageTable, SlabMemory
from model_host.kv.namespace import GROUP_TOKENS, PAGE_LAYOUT, Namespace, canonical_json
from model_host.kv.page_store import PageStore, StoreCounters
from model_host.kv.pool import CachePool, Hold

__all__ = [
    "GROUP_TOKENS",
    "PAGE_LAYOUT",
    "SLAB_TOKENS",
    "Bytes",
    "CachePool",
    "Group",
    "Hold",
    "KVCache",
    "Lineage",
    "Manifest",
    "Namespace",
    "PageStore",
    "PageTable",
    "SlabMemory",
    "StoreCounters",
    "canonical_json",
    "decode_manifest",
    "encode_manifest",
    "group_bounds",
    "usable_tokens",
]
