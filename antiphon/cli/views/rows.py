"""Entries as rows of text; opaque bytes are their fallback text or size."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from rich.cells import cell_len, chop_cells

from antiphon.cli.views.names import NOBODY, Names
from antiphon.cli.views.questions import (
    ANOTHER,
    CANCELLED,
    is_cancelled,
    is_end_of_none,
    is_never_answered,
    own_message,
    question_of,
)
from antiphon.cli.views.undone import TAKEN_BACK, is_undone
from replica.conversation import Conversation, Place, goes_behind, unlisted_before
from replica.ids import EntryId
from replica.log import (
    Checkpoint,
    Entry,
    FinishReason,
    Generation,
    Genesis,
    Grant,
    Kind,
    Media,
    Member,
    Message,
    Opaque,
    Part,
    Request,
    Revocation,
    Role,
    Seal,
    Speaker,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    Tools,
    ToolStarted,
    Usage,
    is_known,
)
from replica.order import SealNode, is_withdrawn

TALK = frozenset({Kind.MESSAGE, Kind.TOOLS, Kind.GENERATION})
"""The kinds that people read; requests, seals and changes of the membership stand between them."""
_WHO_CELLS, _WHO_CELLS_MAX = 8, 17
_WHO_COLORS = {"you": "cyan", "model": "green", "system": "magenta", "tool": "magenta"}
PREVIEW_CELLS = 36
ID_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One entry as text."""

    id: str
    who: str
    text: str
    note: str = ""
    """The end of an answer, or the problem with the entry."""


SIDE_LEAF = "side leaf: later entries did not see it"


def row_of(
    held: Conversation, entry: Entry, names: Names = NOBODY, *, is_verbose: bool = False
) -> Row:
    """Return an entry as a row of text; verbose, an answer has its usage as a note."""
    row = _row_of(held, entry, names, is_verbose=is_verbose)
    if not is_side_leaf(held, entry):
        return row
    return replace(row, note=" · ".join(filter(None, (SIDE_LEAF, row.note))))


def is_side_leaf(held: Conversation, entry: Entry) -> bool:
    """Say whether an answer is in no later context although its branch continues."""
    node = held.order.nodes.get(next(iter(entry.header.parents), EntryId(b"")))
    if node is None or node.generation != entry.id:
        return False
    children = held.order.children(node)
    return bool(children) and not any(child.lists_answer_of(node) for child in children)


def _row_of(held: Conversation, entry: Entry, names: Names, *, is_verbose: bool) -> Row:
    body = held.log.body(entry.id)
    digits = entry.id.hex()[:ID_DIGITS]
    author = names.of(entry.header.author)
    match body:
        case Message(speaker, parts):
            who = author if speaker == Speaker.USER else word_of(Speaker, speaker)
            notes = (written_by(speaker, entry, names), _void(held, entry))
            return Row(digits, who, words_of(parts), " · ".join(filter(None, notes)))
        case Generation():
            note = generation_note(body, is_verbose=is_verbose)
            return Row(digits, "model", words_of(body.parts), note)
        case Request():
            return _request_row(held, entry, body, names)
        case Seal():
            reason = held.order.void.get(entry.id)
            return Row(
                digits, "seal", f"{len(body.entries)} entries", reason.value if reason else ""
            )
        case Genesis(owners):
            return Row(digits, "genesis", f"owner {', '.join(map(names.of, owners))}")
        case Member(Grant(key, granted)):
            return Row(digits, "member", f"{names.of(key)} is {role_name(granted)}")
        case Member(Revocation(key)):
            return Row(digits, "member", f"{names.of(key)} is revoked")
        case Tools(tools):
            return Row(digits, "tools", ", ".join(tool.name for tool in tools))
        case Checkpoint():
            return Row(digits, "checkpoint", f"{body.tokens:,} tokens, {body.size_bytes:,} B")
        case None:
            absent = (
                "body missing" if entry.body is None else "body malformed, or of an unknown kind"
            )
            return Row(digits, author, f"({absent})")
        case _:
            return Row(digits, kind_name(entry.header.kind), author)


def _request_row(held: Conversation, entry: Entry, request: Request, names: Names) -> Row:
    """Return a request with its question; the note says who asked, unless that is its author."""
    question = question_of(held, entry.id)
    asked = question or entry
    text = (
        f"{names.of(asked.header.author)}: {cut(line_of(held, question), PREVIEW_CELLS) or ANOTHER}"
    )
    notes = ["cancelled" if held.order.is_cancelled(entry.id) else "not answered"]
    if entry.header.author != asked.header.author:
        notes.append(f"asked by {names.of(entry.header.author)}")
    notes.append(f"host {names.of(request.host)}")
    return Row(entry.id.hex()[:ID_DIGITS], "request", text, " · ".join(notes))


def words_of(parts: tuple[Part, ...]) -> str:
    """Return parts as text."""
    return "".join(_part_words(part) for part in parts)


def line_of(held: Conversation, message: Entry | None) -> str:
    """Return a message in one line; empty for None."""
    body = held.log.body(message.id) if message is not None else None
    return " ".join(words_of(body.parts).split()) if isinstance(body, Message) else ""


def _part_words(part: Part) -> str:
    match part:
        case Text(text):
            return text
        case Media(_, size, media_type):
            return f"[{media_type}, {size:,} B]"
        case ToolCall(call_id, name, arguments):
            return f"[call {call_id}: {name} {arguments}]"
        case ToolStarted(call_id):
            return f"[started {call_id}]"
        case ToolResult(call_id, parts, is_error):
            return f"[{'error' if is_error else 'result'} {call_id}: {words_of(parts)}]"
        case Tokens(ids):
            return f"[{len(ids)} tokens]"
        case Opaque():
            carried = f"{len(part.data):,} B" if part.data is not None else "blob"
            return part.fallback_text or f"[opaque from {part.issuer}, {carried}]"


def written_by(speaker: int, entry: Entry, names: Names) -> str:
    """Return who wrote a message of the model, the system or a tool; "" for our own key and users.

    Any writer may write one, and it would pass for an answer, or for the words of an owner.
    """
    is_spoken = speaker == Speaker.USER or entry.header.author == names.own
    return "" if is_spoken else f"by {names.of(entry.header.author)}"


def word_of(kind: type[IntEnum], number: int) -> str:
    """Return the name of a number; one of a newer version, or of nobody, stays a number."""
    return kind(number).name.lower() if number in set(kind) else str(number)


def _void(held: Conversation, entry: Entry) -> str:
    """Return why no answer reads a message or comes to it, else the program that wrote it."""
    if not held.log.membership.is_visible(entry):
        if entry.id in held.order.listed_by:
            return "its author may not write this by now; the model has read it"
        return "void: its author may not write this"
    if is_withdrawn(held.order, entry.id):
        return TAKEN_BACK
    if is_cancelled(held, entry):
        return CANCELLED
    body = held.log.body(entry.id)
    return f"from {body.label}" if isinstance(body, Message) and body.label else ""


def generation_note(generation: Generation, *, is_verbose: bool) -> str:
    """Return the finish reason of a generation, unless it is STOP; verbose, both with its usage."""
    finish = finish_name(generation.finish_reason)
    if not is_verbose and generation.finish_reason == FinishReason.STOP:
        return ""
    if generation.finish_reason == FinishReason.REFUSED:
        return f"{finish}: {generation.finish_detail}"
    if generation.finish_reason == FinishReason.INTERRUPTED:
        finish = f"{finish}: {generation.finish_detail}"
    if not is_verbose:
        return finish
    return f"{finish} · {usage_line(generation.usage)}"


def usage_line(usage: Usage) -> str:
    """Return prompt, cached, restored, prefilled and output tokens, time to first, rate."""
    line = (
        f"prompt {usage.prompt_tokens} = {usage.cached_tokens} cached"
        f" + {usage.restored_tokens} restored + {usage.prefilled_tokens} prefilled"
        f" · output {usage.output_tokens}"
    )
    if usage.first_token_us:
        line += f" · first token {usage.first_token_us / 1e6:.2f} s"
    rate = tokens_per_s(usage)
    return f"{line} · {rate_words(rate)}" if rate else line


def rate_words(rate: float) -> str:
    """Return tokens per second as text, in about four digits."""
    return f"{rate:.1f} tok/s" if rate < 100 else f"{rate:,.0f} tok/s"


def end_lines(generation: Generation, next_step: str, *, is_verbose: bool) -> list[str]:
    """Return how an answer ended, unless by itself, and its size; verbose, its whole usage.

    `next_step` says how one that was cut off at its limit goes on, or how a call that it made
    gets its result; empty where there is none.
    """
    usage, reason, lines = generation.usage, generation.finish_reason, []
    if reason == FinishReason.LENGTH:
        limit = counted(usage.output_tokens, "token", "tokens")
        lines.append(" · ".join(filter(None, (f"cut off at its limit of {limit}", next_step))))
    elif reason == FinishReason.TOOL_CALLS:
        lines.append(" · ".join(filter(None, (finish_name(reason), next_step))))
    elif reason != FinishReason.STOP:
        lines.append(finish_name(reason))
    if is_verbose:
        return [*lines, usage_line(usage)]
    rate = tokens_per_s(usage)
    size = counted(usage.output_tokens, "token", "tokens")
    return [*lines, f"{size} · {rate_words(rate)}" if rate else size]


def tokens_per_s(usage: Usage) -> float:
    """Return the decode rate after the first token; 0 if it is unknown."""
    if usage.output_tokens < 2 or not usage.decode_us:
        return 0.0
    return (usage.output_tokens - 1) / usage.decode_us * 1e6


def finish_name(reason: int) -> str:
    """Return the finish reason's word."""
    return word_of(FinishReason, reason)


def counted(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {singular if number == 1 else plural}"


def cut(text: str, width: int) -> str:
    """Return a line of at most `width` cells, with an ellipsis if it was cut."""
    if cell_len(text) <= width:
        return text
    return _fitting(text[:width], width - 1) + "…"


def who_cells(who: str) -> tuple[str, str]:
    """Return the column of who wrote an entry, and its colour."""
    return f"{cut(who, _WHO_CELLS_MAX):<{_WHO_CELLS}}", _WHO_COLORS.get(who, "yellow")


def wrapped(text: str, width: int, joint: str = " ") -> list[str]:
    """Break a text into lines of at most `width` cells; 20 or less means no limit.

    Lines are broken at `joint`, else at a space, else anywhere.
    """
    lines = text.rstrip("\n").split("\n")
    if width <= 20:
        return lines
    return [piece for line in lines for piece in _pieces(line.expandtabs(4), width, joint)]


def _fitting(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most `width` cells."""
    rows = chop_cells(text, width)
    return rows[0] if rows else text  # characters without a cell, as accents, make no row


def _pieces(line: str, width: int, joint: str) -> Iterator[str]:
    start = 0
    while True:
        # More than width + 1 characters fit only where some have no cell: the row ends early then.
        fits = _fitting(line[start : start + width + 1], width)
        end = start + len(fits)
        if end >= len(line):
            yield line[start:]
            return
        for mark in (joint, " "):
            at = line.rfind(mark, start, end + len(mark))
            if at > start:
                yield line[start:at].rstrip(" ")
                start = at + len(mark)
                break
        else:
            yield fits
            start = end


def role_name(role: int) -> str:
    """Return the role's word."""
    return word_of(Role, role)


def kind_name(kind: int) -> str:
    """Return the kind's word."""
    return Kind(kind).name.lower() if is_known(kind) else f"kind {kind}"


def entries_at(held: Conversation, place: Place) -> list[Entry]:
    """Return the entries before a place: the context of its basis, then unsealed entries.

    Answers that the context leaves out are included, since somebody may have read them, unless
    another branch goes on behind them.
    """
    node = goes_behind(held, place)
    context = _context_with_side_leaves(held, node) if node is not None else []
    return [*context, *unlisted_before(held, place)]


def _context_with_side_leaves(held: Conversation, tip: SealNode) -> list[Entry]:
    found: list[Entry] = []
    for node in tip.chain():
        answer = node.parent.generation if node.parent is not None else None
        if answer is not None and is_side_leaf(held, held.log.entries[answer]):
            found.append(held.log.entries[answer])  # else another branch has it, or this one
        found += (held.log.entries[i] for i in node.seal.entries)
    return found


def is_listed(held: Conversation, entry: Entry) -> bool:
    """Say whether people are shown an entry: words, or a request that is without an answer.

    The requests of a message that was taken back, and their ends, are left out, and those that
    were cancelled before their turn, which is said of their message.
    """
    kind = entry.header.kind
    if kind == Kind.REQUEST and is_never_answered(held, entry.id):
        is_shown = own_message(held, entry) is None
    elif kind == Kind.REQUEST:
        is_shown = held.order.generation_of(entry.id) is None
    else:
        is_shown = kind in TALK and not is_end_of_none(held, entry)
    return is_shown and (kind == Kind.MESSAGE or not is_undone(held, entry))
