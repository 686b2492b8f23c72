"""What the store here lost of a conversation: counted, and said, in one way by every command."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from antiphon.cli.views.rows import counted
from replica.conversation import Conversation, EntryStore, Quarantined
from replica.errors import StoreError
from replica.ids import EntryId
from replica.refusals import ConversationDamaged

LOST_WORDS = "A hub that holds them sends them once it is linked. If it does not:"
REFUSED_WORDS = "The hub sends your key nothing of it. next:"


@dataclass(frozen=True, slots=True)
class Losses:
    """The entries that a store lost of one conversation, as far as their ids are known."""

    missing: frozenset[EntryId] = frozenset()
    """Those of which nothing is here."""
    bodies: frozenset[EntryId] = frozenset()
    """Those whose body alone is lost."""
    waiting: int = 0
    """Verified entries that are here and count once those they follow are back."""

    @property
    def count(self) -> int:
        """Number of the entries that are not whole here."""
        return len(self.missing) + len(self.bodies)

    @property
    def more(self) -> str:
        """What else there is to say behind their number."""
        words = f", {len(self.bodies):,} of them the body alone" if self.bodies else ""
        if self.waiting:
            more = counted(self.waiting, "more waits", "more wait")
            words += f"; {more} behind {'this' if self.count == 1 else 'these'}"
        return words


NO_LOSSES = Losses()


def losses_of(held: Conversation, rows: Iterable[Quarantined]) -> Losses:
    """Return what is lost of a conversation, by the rows that its store has in quarantine.

    Others may have kept a body back (ENT-7): what is lost here is in quarantine.
    """
    set_aside = {EntryId(row.id) for row in rows if row.conversation == held.id}
    here = (*held.log.entries.values(), *held.log.pending.values())
    bodies = frozenset(e.id for e in here if e.body is None and e.id in set_aside)
    missing = frozenset(held.damage.missing)
    return Losses(missing, bodies - missing, len(held.log.pending) if held.damage else 0)


async def losses_in(store: EntryStore, held: Conversation) -> Losses:
    """Return what a store lost of a conversation; one that cannot be read names no bodies."""
    try:
        rows = await store.quarantined()
    except StoreError:
        rows = []
    return losses_of(held, rows)


def lost_words(
    held: Conversation, losses: Losses, importing: str, *, is_refused: bool = False
) -> str:
    """Return what is lost of a conversation, with the next step."""
    if losses.count:
        number = counted(losses.count, "entry", "entries")
        loss = f"lacks {number} that the store here lost{losses.more}"
    elif losses.waiting:
        loss = f"lacks what {counted(losses.waiting, 'entry', 'entries')} here wait for"
    else:
        loss = "can't be read: the store here lost it"
    return f"{loss}. {next_step(held, importing, is_refused=is_refused)}"


def losses_record(losses: Losses) -> dict[str, Any]:
    """Return the losses as fields of a JSON object."""
    return {
        "missing": [id_.hex() for id_ in sorted(losses.missing)],
        "bodies_missing": [id_.hex() for id_ in sorted(losses.bodies)],
        "behind_missing": losses.waiting,
    }


def next_step(held: Conversation, importing: str, *, is_refused: bool) -> str:
    """Return the step that may bring back what is lost of a conversation.

    `importing` is the command that imports a file.
    """
    if is_refused:
        return import_step(REFUSED_WORDS, importing)
    return ConversationDamaged.next_step if held.is_blocked else import_step(LOST_WORDS, importing)


def import_step(words: str, importing: str) -> str:
    """Return the step that imports a member's export, behind words that say why."""
    return f"{words} {importing}, an export of another member."


def bodies_missing(held: Conversation) -> list[EntryId]:
    """Return the entries without their body, lost or never come."""
    return [entry.id for entry in held.log.entries.values() if entry.body is None]
