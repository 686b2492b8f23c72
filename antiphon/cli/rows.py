"""Entries as rows of text, and as JSON with every byte.

JSON has opaque bytes in base64, so that they can be compared with the
provider's. Text has their fallback text or size.
"""

import base64
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any

from rich.cells import cell_len, chop_cells

from antiphon.cli.names import NOBODY, Names
from antiphon.cli.undone import TAKEN_BACK, is_undone
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
            return Row(digits, _speaker(speaker, entry, names), words_of(parts), _void(held, entry))
        case Generation():
            note = generation_note(body, is_verbose=is_verbose)
            return Row(digits, "model", words_of(body.parts), note)
        case Request():
            note = "cancelled" if held.order.is_cancelled(entry.id) else "not answered"
            return Row(digits, "request", f"host {names.of(body.host)}", note)
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


def words_of(parts: tuple[Part, ...]) -> str:
    """Return parts as text."""
    return "".join(_part_words(part) for part in parts)


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


def _speaker(speaker: int, entry: Entry, names: Names) -> str:
    if speaker != Speaker.USER:
        return _word(Speaker, speaker)
    return names.of(entry.header.author)


def _word(kind: type[IntEnum], number: int) -> str:
    """Return the name of a number; one of a newer version, or of nobody, stays a number."""
    return kind(number).name.lower() if number in set(kind) else str(number)


def _void(held: Conversation, entry: Entry) -> str:
    """Return why no answer reads a message; of any other, the program that says it wrote it."""
    if not held.log.membership.is_visible(entry):
        if entry.id in held.order.listed_by:
            return "its author may not write this by now; the model has read it"
        return "void: its author may not write this"
    if is_withdrawn(held.order, entry.id):
        return TAKEN_BACK
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


def end_lines(generation: Generation, continue_step: str, *, is_verbose: bool) -> list[str]:
    """Return how an answer ended, unless by itself, and its size; verbose, its whole usage.

    `continue_step` says how one that was cut off at its limit goes on, empty where it can't.
    """
    usage, lines = generation.usage, []
    if generation.finish_reason == FinishReason.LENGTH:
        limit = counted(usage.output_tokens, "token", "tokens")
        lines.append(" · ".join(filter(None, (f"cut off at its limit of {limit}", continue_step))))
    elif generation.finish_reason != FinishReason.STOP:
        lines.append(finish_name(generation.finish_reason))
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
    return _word(FinishReason, reason)


def counted(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {singular if number == 1 else plural}"


def cut(text: str, width: int) -> str:
    """Return a line of at most `width` cells, with an ellipsis if it was cut."""
    if cell_len(text) <= width:
        return text
    return chop_cells(text[:width], width - 1)[0] + "…"


def wrapped(text: str, width: int, joint: str = " ") -> list[str]:
    """Break a text into lines of at most `width` cells; 20 or less means no limit.

    Lines are broken at `joint`, else at a space, else anywhere.
    """
    lines = text.rstrip("\n").split("\n")
    if width <= 20:
        return lines
    return [piece for line in lines for piece in _pieces(line.expandtabs(4), width, joint)]


def _pieces(line: str, width: int, joint: str) -> Iterator[str]:
    start = 0
    while True:
        # A character has at least one cell, so a slice of width + 1 characters suffices.
        fits = chop_cells(line[start : start + width + 1], width)[0] if line else ""
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
    return _word(Role, role)


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

    The requests of a message that was taken back, and their ends, are left out.
    """
    is_request = entry.header.kind == Kind.REQUEST
    is_open = is_request and held.order.generation_of(entry.id) is None
    is_shown = is_open or entry.header.kind in TALK
    return is_shown and (entry.header.kind == Kind.MESSAGE or not is_undone(held, entry))


# --- JSON ---------------------------------------------------------------------


def entry_record(held: Conversation, entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON object, with every byte of its parts."""
    header = entry.header
    body = held.log.body(entry.id)
    record: dict[str, Any] = {
        "id": entry.id.hex(),
        "conversation": held.id.hex(),
        "kind": kind_name(header.kind),
        "author": header.author.hex(),
        "lamport": header.lamport,
        "parents": [p.hex() for p in header.parents],
        "basis": header.basis.hex() if header.basis is not None else None,
        "create_time_ms": header.create_time_ms,
        "visible": held.log.membership.is_visible(entry),
    }
    match body:
        case Message(speaker, parts, label=label):
            record |= {
                "role": _word(Speaker, speaker),
                "text": words_of(parts),
                "label": label or None,
            }
            record["parts"] = [part_record(part) for part in parts]
        case Generation():
            record |= generation_record(body)
        case Request():
            record |= {"host": body.host.hex(), "sampling": asdict(body.sampling)}
            record |= {"output_tokens_max": body.output_tokens_max, "stop": list(body.stop)}
            answer = held.order.generation_of(entry.id)
            record["generation"] = answer.hex() if answer is not None else None
            record |= _form_record(body)
        case Seal():
            record |= {"request": body.request.hex(), "entries": [i.hex() for i in body.entries]}
            record["context_digest"] = body.context_digest.hex()
            record["tokens_per_entry"] = list(body.tokens_per_entry)
            record["void"] = held.order.void.get(entry.id)
        case Genesis(owners, sampling, limit, stop):
            record["owners"] = [o.hex() for o in owners]
            record["sampling"] = asdict(sampling) if sampling is not None else None
            record |= {"output_tokens_max": limit, "stop": list(stop)}
        case Tools(tools):
            record["tools"] = [asdict(tool) for tool in tools]
        case Checkpoint():
            record |= {"tokens": body.tokens, "blob": body.blob.hex(), "bytes": body.size_bytes}
            record["expire_time_ms"] = body.expire_time_ms
        case Member(Grant(key, role)):
            record["grant"] = {"key": key.hex(), "role": role_name(role)}
        case Member(Revocation(key)):
            record["revoke"] = {"key": key.hex()}
        case _:
            record["body"] = base64.b64encode(entry.body).decode() if entry.body else None
    return record


def _form_record(request: Request) -> dict[str, Any]:
    """Return the form and the choice of tools that a request states, if any."""
    record: dict[str, Any] = {}
    if request.response_format is not None:
        record[request.response_format.kind.value] = request.response_format.text
    if request.tool_choice:
        record["tool_choice"] = request.tool_name or request.tool_choice
    return record


def generation_record(generation: Generation) -> dict[str, Any]:
    """Return a generation as a JSON object."""
    return {
        "role": "assistant",
        "text": words_of(generation.parts),
        "parts": [part_record(part) for part in generation.parts],
        "token_ids": list(generation.token_ids),
        "finish_reason": finish_name(generation.finish_reason),
        "finish_detail": generation.finish_detail,
        "usage": usage_record(generation.usage),
    }


def usage_record(usage: Usage) -> dict[str, Any]:
    """Return usage as a JSON object; prompt = cached + restored + prefilled."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "restored_tokens": usage.restored_tokens,
        "prefilled_tokens": usage.prefilled_tokens,
        "output_tokens": usage.output_tokens,
        "first_token_s": round(usage.first_token_us / 1e6, 6),
        "tokens_per_s": round(tokens_per_s(usage), 3),
    }


def part_record(part: Part) -> dict[str, Any]:
    """Return one part as a JSON object, named by its sort; bytes in base64."""
    match part:
        case Text(text):
            return {"text": text}
        case ToolResult(call_id, parts, is_error):
            nested = [part_record(p) for p in parts]
            return {"tool_result": {"call_id": call_id, "parts": nested, "is_error": is_error}}
        case Opaque():
            return {"opaque": _plain(asdict(part), base64_fields=("data",))}
        case Media():
            return {"media": _plain(asdict(part))}
        case Tokens():
            return {"tokens": _plain(asdict(part))}
        case ToolCall():
            return {"tool_call": asdict(part)}
        case ToolStarted():
            return {"tool_started": asdict(part)}


def _plain(fields: dict[str, Any], base64_fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write bytes as text: content in base64, digests in hex."""
    plain = {}
    for name, value in fields.items():
        if isinstance(value, bytes):
            as_base64 = name in base64_fields
            plain[name] = base64.b64encode(value).decode() if as_base64 else value.hex()
        else:
            plain[name] = value
    return plain
