"""The tree of a conversation, drawn as `git log --graph` draws: seals, branches, tail.

Time runs downwards, so that the newest entry is next to the prompt. A side
branch is drawn where it leaves the main branch, which is the branch with the
latest activity. The output is ASCII only.

    *  a seal, with the entries it lists and its answer; an answer that later
       entries did not see is drawn beside the branch
    o  an entry that no seal lists yet
    x  a void seal
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from antiphon.cli.views.names import Names
from antiphon.cli.views.rows import ID_DIGITS, TALK, Row, is_listed, row_of, who_cells
from replica.conversation import Conversation
from replica.ids import EntryId, Track
from replica.log import Entry, Kind, reach
from replica.order import SealNode

_LEFT_OUT = "..."


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the drawing, then an entry; a connector has no row."""

    drawing: str
    row: Row | None = None
    is_seal: bool = False


def draw(held: Conversation, names: Names) -> Iterator[Line]:
    """Yield the lines from the genesis down."""
    genesis = held.log.genesis
    assert genesis is not None, "a conversation begins with its genesis"
    yield Line("*", row_of(held, genesis, names), is_seal=True)
    # Branches nest as deep as a peer likes, deeper than calls can.
    stack = [_Drawing(held, names).below(None, "")]
    while stack:
        part = next(stack[-1], None)
        if part is None:
            stack.pop()
        elif isinstance(part, Line):
            yield part
        else:
            stack.append(part)


def lines_of(lines: Sequence[Line], width: int | None) -> Iterator[Text]:
    """Yield the lines as text of at most `width` cells, all that they have for None.

    Drawings get half of the width at most: those of branches that nest deeper lose their left
    part, so that each entry has its id and words.
    """
    widest = max(len(line.drawing) for line in lines)
    room = widest if width is None else min(widest, width // 2)
    for line in lines:
        drawing = _ending(line.drawing, room)
        if line.row is None:
            yield Text(drawing, style="red")
            continue
        id_style = "yellow" if line.is_seal else "dim"
        text = Text.assemble((f"{drawing:<{room}}", "red"), "  ", (line.row.id, id_style), "  ")
        text.append(*who_cells(line.row.who))
        text.append("  " + " ".join(line.row.text.split()))
        if line.row.note:
            text.append("  " + line.row.note.split(" · ")[0], style="dim")
        if width is not None:
            text.truncate(width, overflow="ellipsis")
        yield text


def _ending(drawing: str, width: int) -> str:
    """Return a drawing, the end of one that is wider than `width`."""
    return drawing if len(drawing) <= width else f"{_LEFT_OUT}{drawing[len(_LEFT_OUT) - width :]}"


Part = Line | Iterator["Part"]
"""A line, or a drawing to insert."""


class _Drawing:
    def __init__(self, held: Conversation, names: Names) -> None:
        self._held = held
        self._names = names
        self._activity = {tip.id: rank for rank, tip in enumerate(held.order.tips())}
        self._latest: dict[EntryId, int] = {}
        for tip in reversed(held.order.tips()):
            node: SealNode | None = tip
            while node is not None and node.id not in self._latest:
                self._latest[node.id] = self._activity[tip.id]
                node = node.parent
        self._tail_drawn: set[EntryId] = set()
        nodes = held.order.nodes.values()
        self._sealed = {i for node in nodes for i in (*node.seal.entries, node.generation)}

    def below(self, node: SealNode | None, prefix: str) -> "Iterator[Part]":
        """Draw the successors of a node: side branches, tail, then the main branch."""
        while True:
            ordered = self._children(node)
            main = ordered.pop() if ordered else None
            if node is not None and node.generation is not None:
                yield self._answer(node, node.generation, main, ordered, prefix)
            for side in ordered:
                yield self._side(side, prefix)
            yield self._tail(node, prefix, has_main=main is not None)
            if main is None:
                return
            node = main
            yield self._node(node, prefix)

    def _children(self, node: SealNode | None) -> list[SealNode]:
        """Return the seals that extend a node, the one with the latest activity last."""
        children = self._held.order.children(node)
        return sorted(children, key=lambda n: self._latest[n.id])

    def _answer(
        self,
        node: SealNode,
        answer: EntryId,
        main: SealNode | None,
        sides: list[SealNode],
        prefix: str,
    ) -> "Iterator[Part]":
        """Draw an answer; remove from `sides` the branches drawn before or below it."""
        entry = self._held.log.entries[answer]
        row = row_of(self._held, entry, self._names)
        if main is None or main.lists_answer_of(node):
            blind = [side for side in sides if not side.lists_answer_of(node)]
            for side in blind:
                sides.remove(side)
                yield self._side(side, prefix)
            if not self._shown(node):
                row = replace(row, id=node.id.hex()[:ID_DIGITS])
                yield Line(prefix + "*", row, is_seal=True)
                return
            goes_on = main is not None or bool(self._tail_of(node))
            yield Line(prefix + ("|" if goes_on else " "), row)
            return
        yield Line(prefix + "|\\")
        yield Line(prefix + "| o", row)
        for side in [side for side in sides if side.lists_answer_of(node)]:
            sides.remove(side)
            yield self._side(side, prefix + "| ")

    def _side(self, node: SealNode, prefix: str) -> "Iterator[Part]":
        yield Line(prefix + "|\\")
        yield self._node(node, prefix + "| ")
        yield self.below(node, prefix + "| ")

    def _node(self, node: SealNode, prefix: str) -> "Iterator[Part]":
        """Draw one turn without its answer, with the seal's mark at its first new entry."""
        shown = self._shown(node)
        digits, children = node.id.hex()[:ID_DIGITS], self._children(node)
        goes_on = bool(children or node.generation or self._tail_of(node))
        passed_over = bool(children) and not children[-1].lists_answer_of(node)
        if not shown and (node.generation is None or passed_over):
            state = "being answered" if node.generation is None else ""
            yield Line(prefix + "*", Row(digits, "seal", "", state), is_seal=True)
        for number, entry in enumerate(shown):
            row = row_of(self._held, entry, self._names)
            if number == 0:
                row = Row(digits, row.who, row.text, row.note)
            mark = "*" if number == 0 else "|" if goes_on else " "
            yield Line(prefix + mark, row, is_seal=number == 0)

    def _shown(self, node: SealNode) -> list[Entry]:
        """Return the newly listed entries of a seal that are shown."""
        entries = (self._held.log.entries[i] for i in node.seal.entries)
        # The previous answer was drawn with its own seal.
        previous = node.parent.generation if node.parent is not None else None
        words = (e for e in entries if e.header.kind in TALK and e.id != previous)
        return [entry for entry in words if is_listed(self._held, entry)]

    def _tail(self, node: SealNode | None, prefix: str, *, has_main: bool) -> "Iterator[Part]":
        tail = self._tail_of(node)
        for number, entry in enumerate(tail):
            self._tail_drawn.add(entry.id)
            if has_main and number == 0:
                yield Line(prefix + "|\\")
            drawing = prefix + ("| o" if has_main else "o")
            yield Line(drawing, row_of(self._held, entry, self._names))

    def _tail_of(self, node: SealNode | None) -> list[Entry]:
        """Return the unsealed entries behind a node that are shown."""
        return [
            entry
            for entry in self._loose_behind(node)
            if entry.id not in self._tail_drawn and is_listed(self._held, entry)
        ]

    def _loose_behind(self, node: SealNode | None) -> list[Entry]:
        """Return visible unsealed entries that follow entries listed by this node's seal.

        Messages written during the answer follow the request, not the answer.
        """
        log = self._held.log
        listed = [EntryId(self._held.id)] if node is None else [*node.seal.entries]
        if node is not None and node.generation is not None:
            listed.append(node.generation)

        def is_passed_over(entry_id: EntryId) -> bool:
            header = log.entries[entry_id].header
            on_track = header.track == Track.CONVERSATION and header.kind != Kind.SEAL
            return entry_id in self._sealed or not on_track

        children = (child for entry_id in listed for child in log.children(entry_id))
        found = reach(children, log.children, is_passed_over)
        visible = log.membership.is_visible
        loose = (log.entries[i] for i in found if not log.is_malformed(i))
        return sorted((e for e in loose if visible(e)), key=lambda e: e.order_key)
