"""lineage.json: fields → namespace digest; secrets and keys → salts; tokens → lineage keys."""

import hmac
import struct
from collections.abc import Iterable

from spec.vectors.make.build import Key, pae, sha256
from spec.vectors.make.misread import misread

PAGE_TOKENS = 16
NAMESPACE_TAG = b"antiphon/v1/namespace\0"
READERS_TAG = b"antiphon/v1/domain/readers\0"
MARKED_TAG = b"antiphon/v1/domain/marked\0"

Vector = dict[str, object]
Field = tuple[str, bytes]

CONFIG = (
    '{"architecture":"llama","context_tokens":2048,"norm_epsilon":"0x1.4f8b588e368f1p-17",'
    '"rope_base":"0x1.86a0000000000p+16"}'
)
FIELDS: list[Field] = [
    ("weights_sha256", sha256(b"weights")),
    ("dequantisation", sha256(b"recipe")),
    ("config", CONFIG.encode()),
    ("numerics", b"bf16"),
    ("kv_dtype", b"bfloat16"),
    (
        "page_layout",
        b"page 16 tokens; group 64 tokens as [L, 2, H_kv, tokens, D], little-endian; v1",
    ),
    ("shapes", b'{"rows":[1,16,128]}'),
    ("numerics_class", sha256(b"canary")),
    ("salt", sha256(b"salt")),
]


def mac(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA-256."""
    return hmac.digest(key, data, "sha256")


# --- namespaces ------------------------------------------------------------------------------


def _framed(items: Iterable[bytes], order: str = "little") -> bytes:
    return b"".join(len(item).to_bytes(4, order) + item for item in items)  # type: ignore[arg-type]


def namespace_pre_image(fields: list[Field]) -> bytes:
    """Return the bytes whose SHA-256 is the namespace digest."""
    return NAMESPACE_TAG + _framed(item for n, v in fields for item in (n.encode(), v))


def _namespace(name: str, comment: str, **changed: bytes) -> Vector:
    fields = [(n, changed.get(n, v)) for n, v in FIELDS]
    pre_image = namespace_pre_image(fields)
    digest = sha256(pre_image).hex()
    both = [item for n, v in fields for item in (n.encode(), v)]
    wrong = {
        "tag framed as PAE": sha256(pae("antiphon/v1/namespace", _framed(both))),
        "no zero byte behind the tag": sha256(NAMESPACE_TAG[:-1] + _framed(both)),
        "values without names": sha256(NAMESPACE_TAG + _framed(v for _, v in fields)),
        "fields sorted by name": sha256(namespace_pre_image(sorted(fields))),
        "lengths big-endian": sha256(NAMESPACE_TAG + _framed(both, "big")),
        "no lengths": sha256(NAMESPACE_TAG + b"".join(both)),
    }
    return {
        "name": name,
        "comment": comment,
        "of": "namespace",
        "fields": [{"name": n, "value": v.hex()} for n, v in fields],
        "pre_image": pre_image.hex(),
        "digest": digest,
        "misread": misread(digest, {n: w.hex() for n, w in wrong.items()}),
    }


# --- salts -----------------------------------------------------------------------------------


def owner_salt(secret: bytes, owner: bytes) -> bytes:
    """Return the salt of stored pages."""
    return mac(secret, owner)


def domain_salt(salt: bytes, readers: list[bytes] | None) -> bytes:
    """Return the salt of pages in memory; without readers that of marked conversations."""
    if readers is None:
        return mac(salt, MARKED_TAG)
    return mac(salt, READERS_TAG + b"".join(sorted(set(readers))))


def _salt(name: str, comment: str, owner: str, readers: list[str] | None) -> Vector:
    secret, key = sha256(b"ring salt"), Key(owner).public
    keys = None if readers is None else [Key(reader).public for reader in readers]
    of_owner = owner_salt(secret, key)
    salt = domain_salt(of_owner, keys)
    wrong = {
        "key and message of the owner's HMAC exchanged": domain_salt(mac(key, secret), keys),
        "the ring's secret in place of the owner's salt": domain_salt(secret, keys),
        "SHA-256 in place of HMAC": sha256(of_owner + READERS_TAG + b"".join(keys or [])),
    }
    if keys is None:
        wrong["no readers in place of marked"] = domain_salt(of_owner, [])
    elif keys != sorted(set(keys)):
        wrong["keys as given"] = mac(of_owner, READERS_TAG + b"".join(keys))
    return {
        "name": name,
        "comment": comment,
        "of": "salt",
        "secret": secret.hex(),
        "owner": key.hex(),
        "readers": None if keys is None else [k.hex() for k in keys],
        "owner_salt": of_owner.hex(),
        "domain_salt": salt.hex(),
        "misread": misread(salt.hex(), {n: w.hex() for n, w in wrong.items()}),
    }


# --- keys ------------------------------------------------------------------------------------


def keys_of(namespace: bytes, ids: list[int]) -> list[bytes]:
    """Return the lineage keys at 0, at the end of each page, and at the end."""
    keys = [sha256(namespace)]
    for at in range(0, len(ids), PAGE_TOKENS):
        page = ids[at : at + PAGE_TOKENS]
        keys.append(sha256(keys[-1] + struct.pack(f"<{len(page)}I", *page)))
    return keys


def _keys(name: str, comment: str, ids: list[int]) -> Vector:
    namespace = sha256(b"namespace")
    keys = keys_of(namespace, ids)
    last, root = keys[-1], keys[0]
    positions = [min(i * PAGE_TOKENS, len(ids)) for i in range(len(keys))]
    wrong = {"the namespace digest as K(0)": _chained(namespace, ids)}
    if ids:
        padded = ids + [0] * (-len(ids) % PAGE_TOKENS)
        wrong |= {
            "ids big-endian": _chained(root, ids, ">"),
            "ids of 8 bytes": _chained(root, ids, "<", "Q"),
            "SHA-256 of the namespace's hex": _chained(sha256(namespace.hex().encode()), ids),
        }
        if len(ids) % PAGE_TOKENS:
            wrong["last page filled with zeros"] = keys_of(namespace, padded)[-1]
        if len(ids) > PAGE_TOKENS:
            data = struct.pack(f"<{len(ids)}I", *ids)
            wrong["one hash over all ids"] = sha256(root + data)
        if len(ids) > 1:
            wrong["pages of one token"] = _chained(root, ids, size=1)
    return {
        "name": name,
        "comment": comment,
        "of": "keys",
        "namespace": namespace.hex(),
        "token_ids": ids,
        "keys": [{"tokens": n, "key": k.hex()} for n, k in zip(positions, keys, strict=True)],
        "misread": misread(last.hex(), {n: w.hex() for n, w in wrong.items()}),
    }


def _chained(
    key: bytes, ids: list[int], order: str = "<", width: str = "I", size: int = PAGE_TOKENS
) -> bytes:
    for at in range(0, len(ids), size):
        page = ids[at : at + size]
        key = sha256(key + struct.pack(f"{order}{len(page)}{width}", *page))
    return key


def build() -> dict[str, object]:
    """Return the file."""
    ramp = list(range(1000, 1040))
    changed = [*ramp[:20], 7, *ramp[21:]]
    return {
        "file": "lineage",
        "spec": "spec/08-checkpoint §2",
        "comment": "`of` names one of three computations. namespace: the `value` of each field, in"
        " order → `pre_image` → `digest`. salt: the ring's `secret` for salts, the first `owner`"
        " and the `readers` (null: marked as sharing) → `owner_salt`, `domain_salt`. keys: the"
        " digest of a `namespace` and `token_ids` → the lineage key at each of `tokens`."
        " `misread`: what a misreading would give as digest, domain salt or last key.",
        "vectors": [
            _namespace("namespace", "all fields, in the order of the chapter's table"),
            _namespace("namespace-salt", "another salt: nothing is shared", salt=sha256(b"2")),
            _namespace(
                "namespace-boundary", "a byte moved from one value to the next", numerics=b"bf1",
                kv_dtype=b"6bfloat16",
            ),
            _namespace("namespace-empty", "a value of no bytes has a length", shapes=b""),
            _salt("salt-one", "the owner reads alone", "ada", ["ada"]),
            _salt("salt-sorted", "readers given unsorted", "ada", _unsorted()),
            _salt("salt-twice", "a key given twice counts once", "ada", ["bob", "ada", "bob"]),
            _salt("salt-owner", "the same readers, another owner", "bob", ["ada", "bob"]),
            _salt("salt-marked", "marked as sharing, whoever reads", "ada", None),
            _keys("keys-none", "no tokens: the root", []),
            _keys("keys-one", "one token is a short page", [7]),
            _keys("keys-page", "one whole page", ramp[:16]),
            _keys("keys-page-and-one", "a page and a token", ramp[:17]),
            _keys("keys", "two pages and a half", ramp),
            _keys("keys-changed", "another token 20: the key at 16 stays", changed),
            _keys("keys-wide", "ids of more than two bytes", [0, 65_536, 2**32 - 1]),
        ],
    }  # fmt: skip


def _unsorted() -> list[str]:
    names = ["ada", "bob", "eve"]
    return sorted(names, key=lambda name: Key(name).public, reverse=True)
