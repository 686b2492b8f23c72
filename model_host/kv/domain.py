"""Sharing domains: which conversations may use each other's pages (spec/08-checkpoint §6). Pure.

A cached prefix shows itself by its speed, and a reader of one conversation could so test
for the contents of another. Pages are shared only where that tells nobody anything new.
"""

import hashlib
import hmac
from collections.abc import Collection

_SAME_READERS = b"antiphon/v1/domain/readers\0"
_MARKED = b"antiphon/v1/domain/marked\0"
KEY_BYTES = 32


def domain_salt(owner_salt: bytes, readers: Collection[bytes] | None) -> bytes:
    """Return the salt of a conversation's sharing domain, for its namespace; 32 bytes.

    `owner_salt` comes from the host's keys and the conversation's first owner. `readers`
    are the keys that may read the conversation, 32 bytes each; None if its owner has
    marked it as one of those that share their pages whoever reads them.
    """
    if readers is None:
        return hmac.digest(owner_salt, _MARKED, hashlib.sha256)
    keys = sorted(set(readers))
    assert all(len(key) == KEY_BYTES for key in keys), "keys of one length don't run together"
    return hmac.digest(owner_salt, _SAME_READERS + b"".join(keys), hashlib.sha256)
