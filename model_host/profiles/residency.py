"""Which profiles of a host are loaded, within a budget of memory (spec/07-host §1). Pure.

    use ─► True: in use until `release`
        └► False: room_for ─► profiles to unload, then load it and `add`
                           └► None: wait for a `release`

A profile with running work is never unloaded. Of the others the least recently used goes
first. While one waits for room, no other comes into use, so that it doesn't wait for ever.
"""

from collections.abc import Mapping

from model_host.errors import ProfileTooLarge
from replica.ids import Digest


def require_room(name: str, need: int, bytes_max: int) -> None:
    """Refuse a model that doesn't fit in the budget alone. Raises ProfileTooLarge."""
    if need > bytes_max:
        raise ProfileTooLarge(
            f"{name} needs {need:,} bytes for weights, keys and values; "
            f"the host's memory_bytes_max is {bytes_max:,}"
        )


class Residency:
    """The loaded profiles of a host, by digest, and the number of uses of each."""

    def __init__(self, bytes_of: Mapping[Digest, int], bytes_max: int) -> None:
        """State the memory that each profile needs, and the budget of all loaded ones."""
        self._bytes_of = bytes_of
        self._bytes_max = bytes_max
        self._uses: dict[Digest, int] = {}  # of each loaded one, the least recently used first
        self._wanted: Digest | None = None

    @property
    def loaded_bytes(self) -> int:
        """Return the memory that the loaded profiles need."""
        return sum(self._bytes_of[profile] for profile in self._uses)

    @property
    def wanted(self) -> Digest | None:
        """Return the profile that waits for room, None if there is none."""
        return self._wanted

    def use(self, profile: Digest) -> bool:
        """Count a use of a profile if it is loaded and none waits for room; say whether."""
        if profile not in self._uses or self._wanted not in (None, profile):
            return False
        self._uses[profile] = self._uses.pop(profile) + 1
        return True

    def release(self, profile: Digest) -> None:
        """End a use."""
        assert self._uses[profile] > 0, "each use ends once"
        self._uses[profile] -= 1

    def room_for(self, profile: Digest) -> list[Digest] | None:
        """Return the profiles to unload before one is loaded, None if it has to wait.

        After None, call it again once a use has ended, or `give_up`. Raises ProfileTooLarge
        if it doesn't fit alone.
        """
        need = self._bytes_of[profile]
        require_room("the profile", need, self._bytes_max)
        free, unloaded = self._bytes_max - self.loaded_bytes, []
        for other, uses in self._uses.items():
            if free >= need:
                break
            if not uses:
                unloaded.append(other)
                free += self._bytes_of[other]
        if free < need:
            self._wanted = profile
            return None
        return unloaded

    def give_up(self) -> None:
        """Let none wait for room any more: it was loaded, or no longer wanted."""
        self._wanted = None

    def add(self, profile: Digest) -> None:
        """Record that a profile was loaded, without a use."""
        assert profile not in self._uses, "a profile is loaded once"
        self._uses[profile] = 0
        assert self.loaded_bytes <= self._bytes_max, "the caller made room"

    def remove(self, profile: Digest) -> None:
        """Record that a profile was unloaded."""
        assert self._uses[profile] == 0, "a profile with running work stays"
        del self._uses[profile]
