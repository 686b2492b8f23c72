"""The epochs of one store, told from those of another device of its key (spec/02-entry §7, ENT-14).

Pure: random bytes are arguments. An epoch has a mark, which the store's secret makes of its
random bytes. Two devices with one key would otherwise go on in each other's lanes, and fork them.
"""

from replica.ids import tagged_sha256

CHANCE_BYTES = 5
"""Random bytes of an epoch."""
_MARK_BYTES = 3
"""One epoch in 16 million of another store looks like one's own."""


class StoreEpochs:
    """Makes the epochs of one store, and recognises them."""

    def __init__(self, secret: bytes) -> None:
        """Use the secret that the store keeps."""
        self._secret = secret

    def new(self, chance: bytes) -> int:
        """Return an epoch of this store, made of CHANCE_BYTES random bytes; never 0."""
        return int.from_bytes(chance + self._mark(chance), "little") or 1

    def is_own(self, epoch: int) -> bool:
        """Say whether this store began an epoch."""
        made = epoch.to_bytes(CHANCE_BYTES + _MARK_BYTES, "little")
        return made[CHANCE_BYTES:] == self._mark(made[:CHANCE_BYTES])

    def _mark(self, chance: bytes) -> bytes:
        return tagged_sha256(b"antiphon/v1/store-epoch", self._secret + chance)[:_MARK_BYTES]
