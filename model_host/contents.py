"""The token ids of one entry's content, without the template around it (spec/07-host §2). Pure.

Contents are tokenised as plain text. Recorded ids are inserted as they were produced.
"""

from collections.abc import Iterator, Sequence

from model_host.refusals import (
    MediaUnsupported,
    OpaqueRequired,
    TokensControl,
    TokensForeign,
    ToolsUnsupported,
)
from model_host.template import Encoder
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
    ToolResult,
)


def message_ids(
    entry: EntryId,
    parts: tuple[Part, ...],
    encoder: Encoder,
    projections: list[Projected],
    within: int | None = None,
) -> list[int]:
    """Tokenise the parts of a message; those of a tool result are `within` part `within`.

    The outcome for each opaque part is appended to `projections`.
    """
    ids: list[int] = []
    text = ""
    for index, part in enumerate(parts):
        number = index if within is None else within
        match part:
            case Text(piece):
                text += piece
            case Tokens(token_ids, digest):
                if digest != encoder.digest:
                    raise TokensForeign(f"ids of a part of {short(entry)}")
                ids += [*encoder.encode(text), *_typed_ids(token_ids, encoder)]
                text = ""
            case Opaque():
                outcome = _project(part)
                projections.append(Projected(entry, number, outcome))
                text += part.fallback_text if outcome is Outcome.DEGRADED else ""
            case ToolResult(_, inner, _):
                ids += encoder.encode(text)
                ids += message_ids(entry, inner, encoder, projections, number)
                text = ""
            case Media():
                raise MediaUnsupported
            case _:
                raise ToolsUnsupported
    return [*ids, *encoder.encode(text)] if text else ids


def recorded_ids(
    entry: EntryId, generation: Generation, encoder: Encoder, projections: list[Projected]
) -> list[int]:
    """Return the ids of an answer; they enter the context in place of its parts."""
    for number, part in enumerate(generation.parts):
        for opaque in _opaque_in(part):
            _project(opaque)
            # The text of an answer is never tokenised, so its fallback has no ids.
            projections.append(Projected(entry, number, Outcome.DROPPED))
    if generation.parts and not generation.token_ids:
        raise TokensForeign(f"the answer {short(entry)} has parts and no token ids")
    return _known_ids(generation.token_ids, encoder)


def _known_ids(token_ids: Sequence[int], encoder: Encoder) -> list[int]:
    """Return ids as a list. Raises TokensForeign for an id beyond the vocabulary."""
    if max(token_ids, default=0) >= encoder.token_count:
        raise TokensForeign(f"token {max(token_ids)} of {encoder.token_count}")
    return list(token_ids)


def _typed_ids(token_ids: Sequence[int], encoder: Encoder) -> list[int]:
    """Return ids written by a member as a list. Raises TokensForeign, TokensControl."""
    ids = _known_ids(token_ids, encoder)
    for token_id in ids:
        if encoder.is_control(token_id):
            raise TokensControl(f"token {token_id}")
    return ids


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
