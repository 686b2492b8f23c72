"""profile.json: the fields of a profile → its digest."""

from collections.abc import Callable

from spec.vectors.make.build import pae, sha256
from spec.vectors.make.misread import misread

TAG = "antiphon/v1/profile"
Vector = dict[str, object]
Fields = dict[str, str | int | bool | bytes]

FIELDS: Fields = {
    "name": "SmolLM2",
    "weights_digest": sha256(b"weights"),
    "tokenizer_digest": sha256(b"tokenizer"),
    "template_digest": sha256(b"template"),
    "render_recipe_digest": sha256(b"rendering"),
    "sampler_digest": sha256(b"sampling"),
    "numerics": "bf16",
    "context_tokens_max": 8192,
    "has_tools": True,
    "grammar_engine": "llguidance 1.7.6",
}


def encoded(value: str | int | bool | bytes) -> bytes:
    """Return the bytes of a field."""
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return value.to_bytes(4, "little")
    return value.encode() if isinstance(value, str) else value


def content_of(
    fields: Fields, encode: Callable[[str | int | bool | bytes], bytes] = encoded
) -> bytes:
    """Return all fields, each with its length."""
    values = [encode(value) for value in fields.values()]
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


def _as_text(value: str | int | bool | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _big_endian(value: str | int | bool | bytes) -> bytes:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value).to_bytes(4, "big") if is_number else encoded(value)


def _wide(value: str | int | bool | bytes) -> bytes:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value).to_bytes(8, "little") if is_number else encoded(value)


def _profile(vector: str, comment: str, /, **changed: str | int | bool) -> Vector:
    fields = FIELDS | changed
    content = content_of(fields)
    digest = sha256(pae(TAG, content)).hex()
    wrong = {
        "numbers and booleans as text": content_of(fields, _as_text),
        "numbers big-endian": content_of(fields, _big_endian),
        "numbers of 8 bytes": content_of(fields, _wide),
        "no lengths": b"".join(map(encoded, fields.values())),
        "fields sorted by name": content_of(dict(sorted(fields.items()))),
    }
    results = {reading: sha256(pae(TAG, data)).hex() for reading, data in wrong.items()}
    results["tag without its frame"] = sha256(TAG.encode() + b"\0" + content).hex()
    return {
        "name": vector,
        "comment": comment,
        "fields": {n: v.hex() if isinstance(v, bytes) else v for n, v in fields.items()},
        "content": content.hex(),
        "digest": digest,
        "misread": misread(digest, results),
    }


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "profile",
        "spec": "spec/07-host §1",
        "comment": "`fields`, in the order of the chapter, digests in hexadecimal → `content`, each"
        " field with its length → `digest`. `misread`: what a misreading would give.",
        "vectors": [
            _profile("profile", "a profile with room for tools"),
            _profile("no-tools", "room for tools is one byte, 0", has_tools=False),
            _profile("context", "the context length is 4 bytes", context_tokens_max=2**31 + 1),
            _profile("unicode", "texts are UTF-8", name="Modèle é"),
            _profile("empty", "a text of no bytes has a length", grammar_engine=""),
            _profile("boundary", "a byte moved from one text to the next", numerics="bf1"),
        ],
    }
