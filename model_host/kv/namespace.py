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
    """The weights digest (07 §7), 32 bytes."""
    dequantisation: bytes
    """Digest of the recipe that turns the tensors of the files into the engine's, 32 bytes."""
    config: str
    """JSON of the widths, rotary positions and epsilon of the model."""
    numerics: str
    """q4, bf16 or fp32 (07 §7)."""
    kv_dtype: str
    """Number format of keys and values: bfloat16 or float32."""
    page_layout: str
    """`page 16 tokens; group 64 tokens as [L, 2, H_kv, tokens, D], little-endian; v1`."""
    shapes: str
    """JSON of the recipe of attention and its closed set of shapes."""
    numerics_class: bytes
    """The numerics class (07 §5), 32 bytes."""
    salt: bytes
    """The salt of the pages, 32 bytes."""

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
