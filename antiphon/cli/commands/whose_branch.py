"""The branches of others behind one's last turn: which one `send` goes on, and the others."""

from antiphon.cli.commands.branches import unique_digits
from antiphon.cli.common import Session, next_command
from antiphon.cli.views import PREVIEW_CELLS, Names, cut, words_of
from replica.conversation import Conversation, Place
from replica.ids import EntryId, PublicKey
from replica.log import Conflict, Message, reach
from replica.order import SealNode


def branch_words(held: Conversation, node: SealNode, names: Names) -> str:
    """Return who asked for the answer of a seal, and with which words, in one line."""
    bodies = map(held.log.body, reversed(node.seal.entries))
    said = next((words_of(b.parts) for b in bodies if isinstance(b, Message)), "")
    preview = cut(" ".join(said.split()), PREVIEW_CELLS) or "(another answer)"
    return f"{names.of(held.log.entries[node.seal.request].header.author)}: {preview}"


def say_branches(
    session: Session, held: Conversation, last: EntryId, place: Place, own: PublicKey, names: Names
) -> None:
    """Print the branches that others began behind the request `last`, of which `place` is one."""
    begun, goes_on = begun_behind(held, last, own), held.order.nodes.get(place.basis or last)
    chain = goes_on.chain() if goes_on is not None else []
    for node in begun:
        words = branch_words(held, node, names)
        if node in chain:
            step = next_command(session.settings, "branches")
            session.out.note(f"note: this goes on a branch by {words} · {step} lists the others")
        else:
            digits = unique_digits(node.id, held.log.entries)
            step = next_command(session.settings, "switch", digits)
            session.out.note(f"note: another branch, by {words} · {step} goes there")


def begun_behind(held: Conversation, last: EntryId, own: PublicKey) -> list[SealNode]:
    """Return the seals which others' forks behind a request began, the oldest first.

    One that was asked before the answer came extends the seal before that of the request.
    """
    order, entries = held.order, held.log.entries
    seal = order.seal_of.get(last)
    found, todo = list[SealNode](), list[SealNode]()
    if seal is not None:
        node = order.nodes[seal]
        todo += order.children(node)
        todo += [one for one in order.children(node.parent) if _follows(held, one, last)]
    while todo:
        node = todo.pop()
        header = entries[node.seal.request].header
        if header.conflict == Conflict.FORK and header.author != own:
            found.append(node)
        else:
            todo += order.children(node)
    return sorted(found, key=lambda node: entries[node.id].order_key)


def _follows(held: Conversation, node: SealNode, last: EntryId) -> bool:
    """Say whether the request of a seal follows the request `last` by entries behind its basis."""
    entries, is_settled = held.log.entries, node.parent.covers if node.parent is not None else None
    asked = entries[node.seal.request].header
    return last in reach(asked.parents, lambda i: entries[i].header.parents, is_settled)
