"""Entries as JSON with every byte.

Opaque bytes are in base64, so that they can be compared with the provider's.
"""

import base64
from dataclasses import asdict
from typing import Any

from antiphon.cli.views.rows import (
    finish_name,
    kind_name,
    role_name,
    tokens_per_s,
    word_of,
    words_of,
)
from replica.conversation import Conversation
from replica.log import (
    Checkpoint,
    Entry,
    Generation,
    Genesis,
    Grant,
    Media,
    Member,
    Message,
    Opaque,
    Part,
    Request,
    Revocation,
    Seal,
    Speaker,
    Text,
    Tokens,
    ToolCall,
    ToolChoice,
    ToolResult,
    Tools,
    ToolStarted,
    Usage,
)


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
                "role": word_of(Speaker, speaker),
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
        record["tool_choice"] = request.tool_name or word_of(ToolChoice, request.tool_choice)
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
