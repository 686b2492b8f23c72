"""Names of keys, for people: "you", else the user's own name for a key, else a proposed one.

The user's names stay beside the replica (replica/io/conversations/petnames.py). A name in the
shared document is a proposal that any writer could have made, so digits of the key stand behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from replica.ids import PublicKey

KEY_DIGITS = 6
_PROPOSED_CHARACTERS, _PROPOSED_DIGITS = 12, 4

YOU = "you"
"""The name of this replica's own key."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one replica, and those proposed in one conversation."""

    own: PublicKey | None = None
    given: Mapping[PublicKey, str] = field(default_factory=dict)
    proposed: Mapping[PublicKey, str] = field(default_factory=dict)

    def of(self, key: PublicKey) -> str:
        """Return the name of a key."""
        if key == self.own:
            return YOU
        if key in self.given:
            return self.given[key]
        proposed = " ".join(self.proposed.get(key, "").split())[:_PROPOSED_CHARACTERS]
        if proposed:
            return f"{proposed}~{key.hex()[:_PROPOSED_DIGITS]}"
        return key.hex()[:KEY_DIGITS]


NOBODY = Names()
"""No names: keys are shown by their first digits."""
