"""The kinds of entries, and the rules of each (spec/02-entry §5, spec/03-order §2).

Pure. This table is the only one of its kind: codecs, admission, membership, order
and authors all read the rules of a kind from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from replica.ids import Track
from replica.log.body import (
    Body,
    Cancel,
    Checkpoint,
    DocumentUpdate,
    Generation,
    Genesis,
    Join,
    Member,
    Message,
    Request,
    Role,
    Seal,
    Tools,
)


class Kind(IntEnum):
    """The kinds of version 1; other numbers are carried and ignored."""

    GENESIS = 1
    MEMBER = 2
    MESSAGE = 3
    TOOLS = 4
    REQUEST = 5
    SEAL = 6
    GENERATION = 7
    CANCEL = 8
    CHECKPOINT = 9
    DOCUMENT = 12
    JOIN = 13


@dataclass(frozen=True, slots=True)
class Rules:
    """One row of the table of kinds."""

    track: Track | None
    """The track of such an entry; None for any."""
    roles: frozenset[Role]
    """Roles that allow the kind; an entry by an author with none of them is void."""
    body: type[Body] | None = None
    """The class of its body; None for a kind unknown here."""
    is_control: bool = False
    """The body is needed for admission and never withheld: verdicts depend on it."""
    is_context: bool = False
    """Seals list it; coverage passes through all other kinds without listing them."""


_OWNERS = frozenset({Role.OWNER})
_WRITERS = frozenset({Role.WRITER, Role.OWNER})
_HOSTS = frozenset({Role.HOST})
_JOINERS = frozenset({Role.WRITER, Role.OWNER, Role.HOST})
_EVERYONE = frozenset(Role)

KINDS: Mapping[int, Rules] = {
    Kind.GENESIS: Rules(Track.ALL, _OWNERS, Genesis, is_control=True),
    Kind.MEMBER: Rules(Track.MEMBERSHIP, _OWNERS, Member, is_control=True),
    Kind.MESSAGE: Rules(Track.CONVERSATION, _WRITERS, Message, is_context=True),
    Kind.TOOLS: Rules(Track.CONVERSATION, _WRITERS, Tools, is_context=True),
    Kind.REQUEST: Rules(Track.CONVERSATION, _WRITERS, Request, is_control=True, is_context=True),
    Kind.SEAL: Rules(Track.CONVERSATION, _HOSTS, Seal, is_control=True),
    Kind.GENERATION: Rules(Track.CONVERSATION, _HOSTS, Generation, is_context=True),
    Kind.CANCEL: Rules(Track.CONVERSATION, _WRITERS, Cancel),
    Kind.CHECKPOINT: Rules(Track.CONVERSATION, _HOSTS, Checkpoint),
    Kind.DOCUMENT: Rules(Track.DOCUMENT, _WRITERS, DocumentUpdate),
    Kind.JOIN: Rules(None, _JOINERS, Join),
}

_UNKNOWN = Rules(None, _EVERYONE)
_UNKNOWN_CRITICAL = Rules(None, _OWNERS)
"""Such an entry stops everyone who does not know its kind; one by a reader must not."""

CONTROL_KINDS = frozenset(kind for kind, rules in KINDS.items() if rules.is_control)
CONTEXT_KINDS = frozenset(kind for kind, rules in KINDS.items() if rules.is_context)

_KIND_OF_BODY = {rules.body: Kind(kind) for kind, rules in KINDS.items()}


def is_known(kind: int) -> bool:
    """Say whether version 1 knows the kind."""
    return kind in KINDS


def rules_of(kind: int, *, critical: bool = False) -> Rules:
    """Return the rules of any kind; `critical` matters for unknown kinds alone."""
    return KINDS.get(kind) or (_UNKNOWN_CRITICAL if critical else _UNKNOWN)


def kind_of(body: Body) -> Kind:
    """Return the kind of the entries that carry such a body."""
    return _KIND_OF_BODY[type(body)]
