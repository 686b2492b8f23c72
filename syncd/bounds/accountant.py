"""Memory that peers occupy at a hub: bounds per link, per key and per hub (LIM-10).

Pure. A holder is a link, or the drafts of a conversation; the driver sets its bytes as they
change. Whoever holds most is let go of first: the heaviest holder of the heaviest key.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from replica import limits
from replica.ids import PublicKey

Holder = Hashable


@dataclass(slots=True)
class _Account:
    """The bytes of one key, in all and by holder."""

    total: int = 0
    of: dict[Holder, int] = field(default_factory=dict)


class Accountant:
    """The bytes that each holder occupies, and the holders to let go of."""

    def __init__(
        self,
        *,
        holder_max: float = limits.MEMORY_LINK_BYTES_MAX,
        key_max: float = limits.MEMORY_KEY_BYTES_MAX,
        hub_max: float = limits.MEMORY_BYTES_MAX,
    ) -> None:
        """Allow so many bytes of one holder, of all holders of a key, and of all keys."""
        self._holder_max = holder_max
        self._key_max = key_max
        self._hub_max = hub_max
        self._accounts: dict[PublicKey, _Account] = {}
        self._key_of: dict[Holder, PublicKey] = {}
        self.total = 0
        """Bytes of all holders."""

    @property
    def count(self) -> int:
        """Number of keys that occupy anything."""
        return len(self._accounts)

    def total_of(self, key: PublicKey) -> int:
        """Return the bytes of all holders of a key."""
        account = self._accounts.get(key)
        return account.total if account is not None else 0

    def key_of(self, holder: Holder) -> PublicKey | None:
        """Return the key of a holder; None if it occupies nothing."""
        return self._key_of.get(holder)

    def size_of(self, holder: Holder) -> int:
        """Return the bytes of a holder."""
        key = self._key_of.get(holder)
        return self._accounts[key].of[holder] if key is not None else 0

    def hold(self, holder: Holder, key: PublicKey, size: int) -> bool:
        """Set the bytes of a holder; say whether a bound is exceeded now."""
        if size <= 0:
            self.release(holder)
            return False
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
        change = size - account.of.get(holder, 0)
        account.of[holder] = size
        self._key_of[holder] = key
        account.total += change
        self.total += change
        return (
            size > self._holder_max or account.total > self._key_max or self.total > self._hub_max
        )

    def release(self, holder: Holder) -> None:
        """Forget a holder, which occupies nothing any more."""
        key = self._key_of.pop(holder, None)
        if key is None:
            return
        account = self._accounts[key]
        size = account.of.pop(holder)
        account.total -= size
        self.total -= size
        if not account.of:
            del self._accounts[key]

    def excess(self) -> list[Holder]:
        """Release the holders to let go of until all bounds are kept; return them, heaviest first.

        A holder beyond its own bound goes in any case.
        """
        gone: list[Holder] = []
        while (holder := self._next_excess()) is not None:
            gone.append(holder)
            self.release(holder)
        return gone

    def _next_excess(self) -> Holder | None:
        if not self._accounts:
            return None
        account = max(self._accounts.values(), key=lambda one: one.total)
        single = max(self._accounts.values(), key=lambda one: max(one.of.values()))
        if max(single.of.values()) > self._holder_max:
            account = single
        elif account.total <= self._key_max and self.total <= self._hub_max:
            return None
        return max(account.of, key=lambda holder: account.of[holder])
