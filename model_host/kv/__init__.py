"""Derived state as bytes: caches, namespaces, checkpoints (spec/08)."""

from model_host.kv.cache import KVCache
from model_host.kv.cached_pages import CachedGroup, CachedPages, CachedSlab, Reading
from model_host.kv.checkpoint import (
    Group,
    Manifest,
    decode_manifest,
    encode_manifest,
    group_bounds,
    usable_tokens,
)
from model_host.kv.domain import domain_salt
from model_host.kv.lineage import Lineage
from model_host.kv.memory import SLAB_TOKENS, Bytes, PageTable, SlabMemory
from model_host.kv.namespace import GROUP_TOKENS, PAGE_LAYOUT, Namespace, canonical_json
from model_host.kv.page_pool import PagePool, PoolCounters, Staging
from model_host.kv.page_store import PageStore, StoreCounters
from model_host.kv.pool import CachePool, Hold
from model_host.kv.sequences import KVSequence

__all__ = [
    "GROUP_TOKENS",
    "PAGE_LAYOUT",
    "SLAB_TOKENS",
    "Bytes",
    "CachePool",
    "CachedGroup",
    "CachedPages",
    "CachedSlab",
    "Group",
    "Hold",
    "KVCache",
    "KVSequence",
    "Lineage",
    "Manifest",
    "Namespace",
    "PagePool",
    "PageStore",
    "PageTable",
    "PoolCounters",
    "Reading",
    "SlabMemory",
    "Staging",
    "StoreCounters",
    "canonical_json",
    "decode_manifest",
    "domain_salt",
    "encode_manifest",
    "group_bounds",
    "usable_tokens",
]
