"""The keys that may see all that a host computes (HOST-80). Pure."""

from collections.abc import Iterable

from replica.conversation import Conversation
from replica.ids import PublicKey


class Operators:
    """The host's own key, and those that its settings name."""

    def __init__(self, host: PublicKey, named: Iterable[PublicKey] = ()) -> None:
        """Name the operators of `host`."""
        self._keys = frozenset((host, *named))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def may_see(self, key: PublicKey, held: Conversation) -> bool:
        """Say whether a key may see the running requests of a conversation."""
        return key in self or held.is_member(key)
