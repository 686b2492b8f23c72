"""salt.json: the salt of a body that a client without a store derives from a retry id."""

from spec.vectors.make.build import Key, pae, sha256
from spec.vectors.make.misread import misread


def _vector(name: str, comment: str, author: str, retry_id: bytes) -> dict[str, object]:
    key = Key(author).public
    whole = sha256(pae("antiphon/v1/salt", key + retry_id))
    wrong = {
        "last 16 bytes": whole[16:],
        "no tag": sha256(key + retry_id)[:16],
        "retry id first": sha256(pae("antiphon/v1/salt", retry_id + key))[:16],
        "retry id alone": sha256(pae("antiphon/v1/salt", retry_id))[:16],
    }
    return {
        "name": name,
        "comment": comment,
        "author": key.hex(),
        "retry_id": retry_id.hex(),
        "pre_image": pae("antiphon/v1/salt", key + retry_id).hex(),
        "salt": whole[:16].hex(),
        "misread": misread(whole[:16].hex(), {n: v.hex() for n, v in wrong.items()}),
    }


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "salt",
        "spec": "spec/02-entry §7",
        "comment": "The first 16 bytes of the tagged hash of author ‖ retry id.",
        "vectors": [
            _vector("uuid", "a retry id of 16 bytes", "ada", bytes(range(16))),
            _vector("text", "a retry id is any byte string", "ada", b"turn 17"),
            _vector("another-author", "another author's salt is another", "bob", b"turn 17"),
        ],
    }
