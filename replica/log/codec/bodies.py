"""Conversion of bodies and parts to generated messages and back (spec/02-entry §5)."""

from itertools import pairwise
from typing import cast

from google.protobuf.message import Message as PbMessage

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.ids import ID_BYTES, KEY_BYTES, Digest, EntryId, PublicKey
from replica.log import body as b
from replica.refusals import BodyMalformed

_SAMPLING_FIELDS = tuple(f.name for f in pb.Sampling.DESCRIPTOR.fields if not f.is_repeated)
_USAGE_FIELDS = tuple(f.name for f in pb.Usage.DESCRIPTOR.fields)
_DRAFT_FIELDS = ("sampler_digest", "render_recipe_digest", "draft_digest", "numerics_class")


def _sized(value: bytes, size: int, label: str) -> bytes:
    if len(value) != size:
        raise BodyMalformed(f"{label} has {len(value)} bytes, not {size}")
    return value


def _id(value: bytes, label: str) -> EntryId:
    return EntryId(_sized(value, ID_BYTES, label))


def _key(value: bytes, label: str) -> PublicKey:
    return PublicKey(_sized(value, KEY_BYTES, label))


def _digest(value: bytes, label: str) -> Digest:
    return Digest(_sized(value, ID_BYTES, label))


def _heads(values: "list[bytes] | tuple[bytes, ...]") -> tuple[EntryId, ...]:
    heads = tuple(_id(v, "a membership head") for v in values)
    if len(heads) > limits.MEMBERSHIP_HEADS_MAX:
        raise BodyMalformed(f"{len(heads)} membership heads")
    if any(a >= b for a, b in pairwise(heads)):
        raise BodyMalformed("membership heads are strictly ascending")
    return heads


def sampling_to_pb(sampling: b.Sampling) -> pb.Sampling:
    """Convert sampling parameters to their message."""
    biases = [pb.LogitBias(token_id=one.token_id, bias=one.bias) for one in sampling.logit_bias]
    plain = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
    return pb.Sampling(logit_bias=biases, **plain)


def sampling_from_pb(raw: pb.Sampling) -> b.Sampling:
    """Convert a message to sampling parameters; the sampler checks their ranges."""
    biases = tuple(b.LogitBias(one.token_id, one.bias) for one in raw.logit_bias)
    return b.Sampling(**{name: getattr(raw, name) for name in _SAMPLING_FIELDS}, logit_bias=biases)


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


def part_from_pb(raw: pb.Part, nesting: int = 0) -> b.Part:
    """Convert a message to a part. Raises BodyMalformed for unknown content or deep nesting."""
    if nesting > limits.PART_NESTING_MAX:
        raise BodyMalformed(f"parts nest deeper than {limits.PART_NESTING_MAX}")
    match raw.WhichOneof("content"):
        case "text":
            return b.Text(raw.text.text)
        case "media":
            m = raw.media
            digest = _digest(m.digest, "a blob digest")
            return b.Media(digest, m.size_bytes, m.media_type, m.width_pixels, m.height_pixels)
        case "tool_call":
            c = raw.tool_call
            return b.ToolCall(c.call_id, c.name, c.arguments_json)
        case "tool_started":
            return b.ToolStarted(raw.tool_started.call_id, raw.tool_started.effect_key)
        case "tool_result":
            r = raw.tool_result
            parts = tuple(part_from_pb(p, nesting + 1) for p in r.parts)
            return b.ToolResult(r.call_id, parts, r.is_error)
        case "tokens":
            digest = _digest(raw.tokens.tokenizer_digest, "a tokenizer digest")
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
        blob=_digest(raw.blob, "a blob digest") if payload == "blob" else None,
    )


def _parts(raw: "list[pb.Part]") -> tuple[b.Part, ...]:
    if len(raw) > limits.PARTS_MAX:
        raise BodyMalformed(f"{len(raw)} parts; at most {limits.PARTS_MAX}")
    return tuple(part_from_pb(p) for p in raw)


def body_to_pb(body: b.Body) -> PbMessage:
    """Convert a body to its message."""
    match body:
        case b.Genesis(owners, sampling):
            default = sampling_to_pb(sampling) if sampling is not None else None
            return pb.Genesis(owners=owners, default_sampling=default)
        case b.Member(b.Grant(key, role)):
            return pb.Member(grant=pb.Grant(key=key, role=cast("pb.Role.ValueType", role)))
        case b.Member(b.Revocation(key, cuts)):
            raw = [
                pb.Cut(epoch=c.epoch, track=cast("pb.Track.ValueType", c.track), seq=c.seq, id=c.id)
                for c in cuts
            ]
            return pb.Member(revocation=pb.Revocation(key=key, cuts=raw))
        case b.Message(speaker, parts):
            return pb.Message(
                speaker=cast("pb.Speaker.ValueType", speaker), parts=[part_to_pb(p) for p in parts]
            )
        case b.Tools(tools):
            return pb.Tools(
                tools=[
                    pb.ToolDefinition(
                        name=t.name, description=t.description, parameters_json=t.parameters_json
                    )
                    for t in tools
                ]
            )
        case b.Request():
            return _request_to_pb(body)
        case b.Seal():
            return _seal_to_pb(body)
        case b.Generation():
            return _generation_to_pb(body)
        case b.Cancel(note):
            return pb.Cancel(note=note)
        case b.DocumentUpdate(update):
            return pb.Document(update=update)
        case b.Join():
            return pb.Join()
        case _:
            raise AssertionError(f"no message for {type(body).__name__}")


def _request_to_pb(body: b.Request) -> pb.Request:
    return pb.Request(
        host=body.host,
        profile=body.profile or b"",
        sampling=sampling_to_pb(body.sampling),
        output_tokens_max=body.output_tokens_max,
        stop=body.stop,
        executor=body.executor or b"",
        membership_heads=body.membership_heads,
        answer_by_ms=body.answer_by_ms,
        output_tokens_min=body.output_tokens_min,
        stop_tokens=body.stop_tokens,
        logprobs=body.logprobs,
    )


def _seal_to_pb(body: b.Seal) -> pb.Seal:
    return pb.Seal(
        request=body.request,
        prev_seal=body.prev_seal or b"",
        entries=body.entries,
        profile=body.profile,
        context_digest=body.context_digest,
        render_digest=body.render_digest,
        tokens_per_entry=body.tokens_per_entry,
        membership_heads=body.membership_heads,
        projections=[
            pb.Projection(
                entry=p.entry,
                part_index=p.part_index,
                outcome=cast("pb.ProjectionOutcome.ValueType", p.outcome),
            )
            for p in body.projections
        ],
    )


def _generation_to_pb(body: b.Generation) -> pb.Generation:
    return pb.Generation(
        token_ids=body.token_ids,
        parts=[part_to_pb(p) for p in body.parts],
        visible_bytes=body.visible_bytes,
        finish_reason=cast("pb.FinishReason.ValueType", body.finish_reason),
        finish_detail=body.finish_detail,
        usage=pb.Usage(**{name: getattr(body.usage, name) for name in _USAGE_FIELDS}),
        run=body.run,
        logprobs=[
            pb.TokenLogprobs(logprob=t.logprob, top_ids=t.top_ids, top_logprobs=t.top_logprobs)
            for t in body.logprobs
        ],
        **{name: getattr(body, name) or b"" for name in _DRAFT_FIELDS},
    )


def body_from_pb(raw: PbMessage) -> b.Body:
    """Convert a message to a body. Raises BodyMalformed where it exceeds a bound."""
    match raw:
        case pb.Genesis():
            return _genesis_from_pb(raw)
        case pb.Member():
            return b.Member(_change_from_pb(raw))
        case pb.Message():
            return b.Message(raw.speaker, _parts(list(raw.parts)))
        case pb.Tools():
            return b.Tools(
                tuple(b.ToolDefinition(t.name, t.description, t.parameters_json) for t in raw.tools)
            )
        case pb.Request():
            return _request_from_pb(raw)
        case pb.Seal():
            return _seal_from_pb(raw)
        case pb.Generation():
            return _generation_from_pb(raw)
        case pb.Cancel():
            return b.Cancel(raw.note)
        case pb.Document():
            return b.DocumentUpdate(raw.update)
        case pb.Join():
            return b.Join()
        case _:
            raise AssertionError(f"no dataclass for {raw.DESCRIPTOR.name}")


def _genesis_from_pb(raw: pb.Genesis) -> b.Genesis:
    owners = tuple(_key(k, "an owner key") for k in raw.owners)
    if not 1 <= len(owners) <= limits.OWNERS_MAX or len(set(owners)) != len(owners):
        raise BodyMalformed(f"a genesis names 1 to {limits.OWNERS_MAX} different owners")
    has_default = raw.HasField("default_sampling")
    return b.Genesis(owners, sampling_from_pb(raw.default_sampling) if has_default else None)


def _change_from_pb(raw: pb.Member) -> b.Grant | b.Revocation:
    match raw.WhichOneof("change"):
        case "grant":
            return b.Grant(_key(raw.grant.key, "a granted key"), raw.grant.role)
        case "revocation":
            if len(raw.revocation.cuts) > limits.CUTS_MAX:
                raise BodyMalformed(f"{len(raw.revocation.cuts)} cuts")
            cuts = tuple(
                b.Cut(c.epoch, c.track, c.seq, _id(c.id, "a cut")) for c in raw.revocation.cuts
            )
            return b.Revocation(_key(raw.revocation.key, "a revoked key"), cuts)
        case _:
            raise BodyMalformed("a member entry makes no change this version knows")


def _request_from_pb(raw: pb.Request) -> b.Request:
    if len(raw.stop) > limits.STOP_STRINGS_MAX or any(not s for s in raw.stop):
        raise BodyMalformed(f"at most {limits.STOP_STRINGS_MAX} stop strings, none empty")
    return b.Request(
        host=_key(raw.host, "the host key"),
        sampling=sampling_from_pb(raw.sampling),
        profile=_digest(raw.profile, "the profile") if raw.profile else None,
        output_tokens_max=raw.output_tokens_max,
        stop=tuple(raw.stop),
        executor=_key(raw.executor, "the executor key") if raw.executor else None,
        membership_heads=_heads(list(raw.membership_heads)),
        answer_by_ms=raw.answer_by_ms,
        output_tokens_min=raw.output_tokens_min,
        stop_tokens=tuple(raw.stop_tokens),
        logprobs=raw.logprobs,
    )


def _seal_from_pb(raw: pb.Seal) -> b.Seal:
    if not 1 <= len(raw.entries) <= limits.SEAL_ENTRIES_MAX:
        raise BodyMalformed(f"a seal lists 1 to {limits.SEAL_ENTRIES_MAX} entries")
    if len(raw.tokens_per_entry) != len(raw.entries):
        raise BodyMalformed("tokens_per_entry and entries differ in length")
    return b.Seal(
        request=_id(raw.request, "the request"),
        prev_seal=_id(raw.prev_seal, "prev_seal") if raw.prev_seal else None,
        entries=tuple(_id(e, "a listed entry") for e in raw.entries),
        profile=_digest(raw.profile, "the profile"),
        context_digest=_digest(raw.context_digest, "context_digest"),
        render_digest=_digest(raw.render_digest, "render_digest"),
        tokens_per_entry=tuple(raw.tokens_per_entry),
        membership_heads=_heads(list(raw.membership_heads)),
        projections=tuple(
            b.Projected(_id(p.entry, "a projected entry"), p.part_index, p.outcome)
            for p in raw.projections
        ),
    )


def _generation_from_pb(raw: pb.Generation) -> b.Generation:
    digests = {
        name: _digest(getattr(raw, name), name) if getattr(raw, name) else None
        for name in _DRAFT_FIELDS
    }
    return b.Generation(
        token_ids=tuple(raw.token_ids),
        parts=_parts(list(raw.parts)),
        visible_bytes=raw.visible_bytes,
        finish_reason=raw.finish_reason,
        finish_detail=raw.finish_detail,
        usage=b.Usage(**{name: getattr(raw.usage, name) for name in _USAGE_FIELDS}),
        run=raw.run,
        logprobs=_logprobs_from_pb(raw),
        **digests,
    )


def _logprobs_from_pb(raw: pb.Generation) -> tuple[b.TokenLogprobs, ...]:
    if len(raw.logprobs) not in (0, len(raw.token_ids)):
        raise BodyMalformed("logprobs and token_ids differ in length")
    if any(len(t.top_ids) != len(t.top_logprobs) for t in raw.logprobs):
        raise BodyMalformed("top_logprobs and top_ids differ in length")
    return tuple(
        b.TokenLogprobs(t.logprob, tuple(t.top_ids), tuple(t.top_logprobs)) for t in raw.logprobs
    )
