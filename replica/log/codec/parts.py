"""Conversion of parts to generated messages and back (spec/02-entry §5)."""

from typing import cast

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.log import body as b
from replica.log.codec.sizes import digest_of
from replica.refusals import BodyMalformed


def part_to_pb(part: b.Part) -> pb.Part:
    """Convert one part to its message."""
    match part:
        case b.Text(text):
            return pb.Part(text=pb.Text(text=text))
        case b.Media():
            return pb.Part(
                media=pb.Media(
                    digest=part.digest,
                    size_bytes=part.size_bytes,
                    media_type=part.media_type,
                    width_pixels=part.width_pixels,
                    height_pixels=part.height_pixels,
                )
            )
        case b.ToolCall(call_id, name, arguments):
            call = pb.ToolCall(call_id=call_id, name=name, arguments_json=arguments)
            return pb.Part(tool_call=call)
        case b.ToolStarted(call_id, effect_key):
            return pb.Part(tool_started=pb.ToolStarted(call_id=call_id, effect_key=effect_key))
        case b.ToolResult(call_id, parts, is_error):
            inner = [part_to_pb(p) for p in parts]
            result = pb.ToolResult(call_id=call_id, parts=inner, is_error=is_error)
            return pb.Part(tool_result=result)
        case b.Tokens(token_ids, digest):
            return pb.Part(tokens=pb.Tokens(token_ids=token_ids, tokenizer_digest=digest))
        case b.Opaque():
            return pb.Part(opaque=_opaque_to_pb(part))


def _opaque_to_pb(part: b.Opaque) -> pb.Opaque:
    raw = pb.Opaque(
        issuer=part.issuer,
        scope=part.scope,
        key_id=part.key_id,
        dialect=part.dialect,
        purpose=cast("pb.Purpose.ValueType", part.purpose),
        need=cast("pb.Need.ValueType", part.need),
        tokens=part.tokens,
        expire_time_ms=part.expire_time_ms,
        fallback_text=part.fallback_text,
    )
    if part.data is not None:
        raw.data = part.data
    elif part.blob is not None:
        raw.blob = part.blob
    return raw


def part_from_pb(raw: pb.Part) -> b.Part:
    """Convert a message to a part. Raises BodyMalformed for unknown content."""
    match raw.WhichOneof("content"):
        case "text":
            return b.Text(raw.text.text)
        case "media":
            m = raw.media
            digest = digest_of(m.digest, "a blob digest")
            return b.Media(digest, m.size_bytes, m.media_type, m.width_pixels, m.height_pixels)
        case "tool_call":
            c = raw.tool_call
            return b.ToolCall(c.call_id, c.name, c.arguments_json)
        case "tool_started":
            return b.ToolStarted(raw.tool_started.call_id, raw.tool_started.effect_key)
        case "tool_result":
            r = raw.tool_result
            parts = tuple(part_from_pb(p) for p in r.parts)
            return b.ToolResult(r.call_id, parts, r.is_error)
        case "tokens":
            digest = digest_of(raw.tokens.tokenizer_digest, "a tokenizer digest")
            return b.Tokens(tuple(raw.tokens.token_ids), digest)
        case "opaque":
            return _opaque_from_pb(raw.opaque)
        case _:
            raise BodyMalformed("a part has no content this version knows")


def _opaque_from_pb(raw: pb.Opaque) -> b.Opaque:
    payload = raw.WhichOneof("payload")
    if payload is None:
        raise BodyMalformed("an opaque part has neither data nor blob")
    return b.Opaque(
        issuer=raw.issuer,
        scope=raw.scope,
        key_id=raw.key_id,
        dialect=raw.dialect,
        purpose=raw.purpose,
        need=raw.need,
        tokens=raw.tokens,
        expire_time_ms=raw.expire_time_ms,
        fallback_text=raw.fallback_text,
        data=raw.data if payload == "data" else None,
        blob=digest_of(raw.blob, "a blob digest") if payload == "blob" else None,
    )


def parts_from_pb(raw: "list[pb.Part]") -> tuple[b.Part, ...]:
    """Convert the parts of a body. Raises BodyMalformed."""
    if len(raw) > limits.PARTS_MAX:
        raise BodyMalformed(f"{len(raw)} parts; at most {limits.PARTS_MAX}")
    return tuple(part_from_pb(p) for p in raw)
