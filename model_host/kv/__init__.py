"""Derived state as bytes: caches, namespaces, checkpoints (spec/08)."""

from model_host.kv.cached_pages import (
    CachedGroup,
    CachedPages,
    CachedSlab,
    CachedSource,
    Reading,
)
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
from model_host.kv.page_store import PageSource, PageStore, PageTarget, StoreCounters, Stored
from model_host.kv.sequences import KVSequence

__all__ = [
    "GROUP_TOKENS",
    "PAGE_LAYOUT",
    "SLAB_TOKENS",
    "Bytes",
    "CachedGroup",
    "CachedPages",
    "CachedSlab",
    "CachedSource",
    "Group",
    "KVSequence",
    "Lineage",
    "Manifest",
    "Namespace",
    "PagePool",
    "PageSource",
    "PageStore",
    "PageTable",
    "PageTarget",
    "PoolCounters",
    "Reading",
    "SlabMemory",
    "Staging",
    "StoreCounters",
    "Stored",
    "canonical_json",
    "decode_manifest",
    "domain_salt",
    "encode_manifest",
    "group_bounds",
    "usable_tokens",
]
