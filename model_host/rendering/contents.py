"""The token ids of one entry's content, without the template around it (spec/07-host §2). Pure.

Contents are tokenised as plain text. Recorded ids are inserted as they were produced. Tools,
calls and results have the marks of the template's format (model_host/rendering/tool_formats.py).
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from model_host.refusals import (
    MediaUnsupported,
    OpaqueRequired,
    TokensControl,
    TokensForeign,
    ToolsUnsupported,
)
from model_host.rendering.template import Encoder
from model_host.rendering.tool_formats import Piece
from model_host.rendering.turns import TurnRules
from replica.ids import EntryId, short
from replica.log import (
    Generation,
    Media,
    Need,
    Opaque,
    Outcome,
    Part,
    Projected,
    Text,
    Tokens,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolStarted,
)

APART = Piece("\n\n", is_literal=True)
"""Between the pieces of one turn."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The recipe for contents, of one tokenizer and one template's turns."""

    encoder: Encoder
    turns: TurnRules

    def message_ids(
        self,
        entry: EntryId,
        parts: tuple[Part, ...],
        projections: list[Projected],
        foreign: Set[int] = frozenset(),
        *,
        is_spaced: bool = False,
    ) -> tuple[int, ...]:
        """Return the ids of a message; results at the indices `foreign` render as nothing.

        The outcome of each part that is left out, or replaced, is added to `projections`. With
        `is_spaced` a space comes before them.
        """
        ids = _Ids(self.encoder)
        ids.add_text(" " if is_spaced else "")
        for index, part in enumerate(parts):
            if index in foreign:
                projections.append(Projected(entry, index, Outcome.DROPPED))
            else:
                self._add(ids, part, entry, index, projections)
        return ids.all()

    def _add(
        self, ids: "_Ids", part: Part, entry: EntryId, index: int, projections: list[Projected]
    ) -> None:
        """Add a part; one inside a result counts as the entry's part at `index`."""
        match part:
            case Text(text):
                ids.add_text(text)
            case Tokens(token_ids, digest):
                if digest != self.encoder.digest:
                    raise TokensForeign(f"ids of a part of {short(entry)}")
                ids.add_ids(self._typed_ids(token_ids))
            case Opaque():
                outcome = _project(part)
                projections.append(Projected(entry, index, outcome))
                ids.add_text(part.fallback_text if outcome is Outcome.DEGRADED else "")
            case ToolCall(_, name, arguments_json):
                ids.begin_line()
                ids.add(self.turns.format.call(name, arguments_json))
            case ToolResult(_, inner, is_error):
                ids.begin_line()
                begins, ends = self._result_marks()
                ids.add([Piece(begins, is_literal=True)])
                if is_error:
                    ids.add([Piece("Error: " if inner else "Error", is_literal=True)])
                for piece in inner:
                    self._add(ids, piece, entry, index, projections)
                ids.add([Piece(ends, is_literal=True)])
            case ToolStarted():
                pass  # for executors; the model sees the result
            case Media():
                raise MediaUnsupported

    def _result_marks(self) -> tuple[str, str]:
        known = self.turns.format
        return (known.result_begins, known.result_ends) if self.turns.marks_results else ("", "")

    def section_ids(
        self, tools: Sequence[ToolDefinition], *, replaces: bool, joins: bool, begins: bool
    ) -> tuple[int, ...]:
        """Return the ids that offer tools; none where there is nothing to say.

        `replaces`: there were tools before. `joins`: the text continues a system turn. `begins`:
        no other text is in the first turn of the context. Raises ToolsUnsupported.
        """
        pieces = self.turns.format.section(tools, replaces=replaces)
        if pieces and not self.turns.has_system:
            raise ToolsUnsupported
        if pieces and begins and self.turns.default_system:
            pieces = [Piece(self.turns.default_system, is_literal=True), APART, *pieces]
        return self.ids_of([APART, *pieces] if pieces and joins else pieces)

    def ids_of(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Tokenise pieces of the recipe."""
        ids = _Ids(self.encoder)
        ids.add(pieces)
        return ids.all()

    def recorded_ids(
        self, entry: EntryId, generation: Generation, projections: list[Projected]
    ) -> tuple[int, ...]:
        """Return the ids of an answer; they enter the context in place of its parts."""
        for number, part in enumerate(generation.parts):
            for opaque in _opaque_in(part):
                _project(opaque)
                # The text of an answer is never tokenised, so its fallback has no ids.
                projections.append(Projected(entry, number, Outcome.DROPPED))
        if generation.parts and not generation.token_ids:
            raise TokensForeign(f"the answer {short(entry)} has parts and no token ids")
        return self._known_ids(generation.token_ids)

    def _known_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return ids as they are. Raises TokensForeign for an id beyond the vocabulary."""
        if max(token_ids, default=0) >= self.encoder.token_count:
            raise TokensForeign(f"token {max(token_ids)} of {self.encoder.token_count}")
        return tuple(token_ids)

    def _typed_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return ids that a member wrote. Raises TokensForeign, TokensControl."""
        ids = self._known_ids(token_ids)
        for token_id in ids:
            if self.encoder.is_control(token_id):
                raise TokensControl(f"token {token_id}")
        return ids


class _Ids:
    """Ids under construction; texts that follow one another are tokenised as one."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._ids: list[int] = []
        self._text = ""

    def all(self) -> tuple[int, ...]:
        self._flush()
        return tuple(self._ids)

    def add_text(self, text: str) -> None:
        self._text += text

    def add_ids(self, ids: Iterable[int]) -> None:
        self._flush()
        self._ids += ids

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if piece.is_literal:
                self.add_ids(self._encoder.encode_template(piece.text))
            else:
                self._text += piece.text

    def begin_line(self) -> None:
        """Separate a call or a result from what precedes it."""
        if self._text or self._ids:
            self.add([Piece("\n", is_literal=True)])

    def _flush(self) -> None:
        if self._text:
            self._ids += self._encoder.encode(self._text)
            self._text = ""


def begins_with_text(parts: Sequence[Part]) -> bool:
    """Say whether a message begins with text, before which a space is a part of it."""
    return bool(parts) and isinstance(parts[0], Text) and bool(parts[0].text)


def _opaque_in(part: Part) -> Iterator[Opaque]:
    match part:
        case Opaque():
            yield part
        case ToolResult(_, inner, _):
            for piece in inner:
                yield from _opaque_in(piece)
        case _:
            pass


def _project(part: Opaque) -> Outcome:
    """Return the outcome for a part that this host can't open. Raises OpaqueRequired."""
    match part.need:
        case Need.PREFERRED:
            return Outcome.DEGRADED
        case Need.DROPPABLE:
            return Outcome.DROPPED
        case _:
            raise OpaqueRequired(f"a required part can be opened by {part.issuer} only")
