"""The namespace of KV pages: all they depend on, as one digest (spec/08-checkpoint). Pure.

Two hosts with equal namespaces may exchange pages: same weights, same arithmetic, same
layout, same salt. Weights and arithmetic are identified by digests, never by names. The
digest is never truncated.
"""

import hashlib
import json
from dataclasses import dataclass, fields

PAGE_TOKENS = 16
GROUP_TOKENS = 64
PAGE_LAYOUT = (
    f"page {PAGE_TOKENS} tokens; group {GROUP_TOKENS} tokens as [L, 2, H_kv, tokens, D], "
    "little-endian; v1"
)
_TAG = b"antiphon/v1/namespace\0"


@dataclass(frozen=True, slots=True)
class Namespace:
    """Everything a page of keys and values depends on, besides the tokens before it."""

    weights_sha256: bytes
    """SHA-256 of the model file."""
    dequantisation: bytes
    """Digest of the recipe that turns the file's tensors into the engine's."""
    config: str
    """Canonical JSON of the widths, RoPE and epsilon."""
    numerics: str
    """Name of the number formats of weights and computation."""
    kv_dtype: str
    page_layout: str
    shapes: str
    """Canonical JSON of the attention recipe and its closed set of shapes."""
    numerics_class: bytes
    """Digest of the canary computation."""
    salt: bytes
    """Separates the pages of different owners; derived from the host's keys."""

    @property
    def digest(self) -> bytes:
        """The hash of every field with its name, both with their lengths, 32 bytes."""
        hashed = hashlib.sha256(_TAG)
        for field in fields(self):
            value = getattr(self, field.name)
            data = value if isinstance(value, bytes) else str(value).encode()
            for item in (field.name.encode(), data):
                hashed.update(len(item).to_bytes(4, "little") + item)
        return hashed.digest()


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys, no spaces, and floats in hexadecimal."""
    return json.dumps(_exact(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _exact(value: object) -> object:
    """Replace floats by their exact hexadecimal text."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    return value
