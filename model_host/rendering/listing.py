"""The entries of a context, as the seals list them (spec/07-host §2). Pure."""

from dataclasses import dataclass

from replica.conversation import Asked
from replica.ids import EntryId, PublicKey
from replica.log import Body, Generation, Message, Request, Speaker

_NOBODY = PublicKey(b"")


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One entry of a context; `is_final` if it is the last one its seal lists.

    A body of None did not parse: the entry is listed, and renders to no tokens.
    """

    entry: EntryId
    body: Body | None
    is_final: bool
    parents: tuple[EntryId, ...] = ()
    author: PublicKey = _NOBODY
    answered: Asked | None = None
    """The request that a generation answers."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries that one seal lists, and the owners by the membership it names."""

    items: tuple[ContextItem, ...]
    owners: frozenset[PublicKey] = frozenset()

    def has_system_behind(self, number: int) -> bool:
        """Say whether a system message continues the system turn that ends with an entry."""
        for item in self.items[number + 1 :]:
            match item.body:
                case Message(speaker):
                    return speaker == Speaker.SYSTEM
                case Generation():
                    return False
                case Request() if item.is_final:
                    return False
        return False
