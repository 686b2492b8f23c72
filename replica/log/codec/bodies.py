"""Conversion of bodies to generated messages and back (spec/02-entry §5)."""

from itertools import pairwise
from typing import cast

from google.protobuf.message import Message as PbMessage

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.ids import EntryId
from replica.log import body as b
from replica.log.codec.parts import part_to_pb, parts_from_pb
from replica.log.codec.sizes import digest_of, entry_id_of, key_of
from replica.refusals import BodyMalformed

_SAMPLING_FIELDS = tuple(f.name for f in pb.Sampling.DESCRIPTOR.fields if not f.is_repeated)
_USAGE_FIELDS = tuple(f.name for f in pb.Usage.DESCRIPTOR.fields)
_CHECKPOINT_FIELDS = tuple(f.name for f in pb.Checkpoint.DESCRIPTOR.fields)
_DIGEST_FIELDS = (
    "sampler_digest", "render_recipe_digest", "draft_digest", "numerics_class", "grammar_digest",
)  # fmt: skip


def _heads(values: "list[bytes] | tuple[bytes, ...]") -> tuple[EntryId, ...]:
    heads = tuple(entry_id_of(v, "a membership head") for v in values)
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


def body_to_pb(body: b.Body) -> PbMessage:
    """Convert a body to its message."""
    match body:
        case b.Genesis(owners, sampling, limit, stop, shares_pages):
            default = sampling_to_pb(sampling) if sampling is not None else None
            return pb.Genesis(
                owners=owners,
                default_sampling=default,
                shares_pages=shares_pages,
                default_output_tokens_max=limit,
                default_stop=stop,
            )
        case b.Member(b.Grant(key, role)):
            return pb.Member(grant=pb.Grant(key=key, role=cast("pb.Role.ValueType", role)))
        case b.Member(b.Revocation(key, cuts)):
            raw = [
                pb.Cut(epoch=c.epoch, track=cast("pb.Track.ValueType", c.track), seq=c.seq, id=c.id)
                for c in cuts
            ]
            return pb.Member(revocation=pb.Revocation(key=key, cuts=raw))
        case b.Message(speaker, parts, key, label):
            return pb.Message(
                speaker=cast("pb.Speaker.ValueType", speaker),
                parts=[part_to_pb(p) for p in parts],
                key=_key_to_pb(key),
                label=label,
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
        case b.Checkpoint():
            return pb.Checkpoint(**{name: getattr(body, name) for name in _CHECKPOINT_FIELDS})
        case b.DocumentUpdate(update):
            return pb.Document(update=update)
        case b.Join():
            return pb.Join()
        case _:
            raise AssertionError(f"no message for {type(body).__name__}")


def _key_to_pb(key: b.CallKey | None) -> pb.CallKey | None:
    if key is None:
        return None
    return pb.CallKey(key=key.key, call=key.call, attempt=key.attempt)


def _message_from_pb(raw: pb.Message) -> b.Message:
    if len(raw.label.encode()) > limits.LABEL_BYTES_MAX:
        raise BodyMalformed(f"a label has at most {limits.LABEL_BYTES_MAX} bytes")
    return b.Message(raw.speaker, parts_from_pb(list(raw.parts)), _key_from_pb(raw), raw.label)


def _key_from_pb(raw: pb.Message | pb.Request) -> b.CallKey | None:
    if not raw.HasField("key"):
        return None
    digests = digest_of(raw.key.key, "a call's key"), digest_of(raw.key.call, "a call's digest")
    return b.CallKey(*digests, raw.key.attempt)


def _request_to_pb(body: b.Request) -> pb.Request:
    wanted = body.response_format
    formats = {wanted.kind.value: wanted.text} if wanted is not None else {}
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
        tool_choice=cast("pb.ToolChoice.ValueType", body.tool_choice),
        tool_name=body.tool_name,
        **formats,
        key=_key_to_pb(body.key),
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
        grammar_engine=body.grammar_engine,
        **{name: getattr(body, name) or b"" for name in _DIGEST_FIELDS},
    )


def body_from_pb(raw: PbMessage) -> b.Body:
    """Convert a message to a body. Raises BodyMalformed where it exceeds a bound."""
    match raw:
        case pb.Genesis():
            return _genesis_from_pb(raw)
        case pb.Member():
            return b.Member(_change_from_pb(raw))
        case pb.Message():
            return _message_from_pb(raw)
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
        case pb.Checkpoint():
            return _checkpoint_from_pb(raw)
        case pb.Document():
            return b.DocumentUpdate(raw.update)
        case pb.Join():
            return b.Join()
        case _:
            raise AssertionError(f"no dataclass for {raw.DESCRIPTOR.name}")


def _genesis_from_pb(raw: pb.Genesis) -> b.Genesis:
    owners = tuple(key_of(k, "an owner key") for k in raw.owners)
    if not 1 <= len(owners) <= limits.OWNERS_MAX or len(set(owners)) != len(owners):
        raise BodyMalformed(f"a genesis names 1 to {limits.OWNERS_MAX} different owners")
    sampling = None
    if raw.HasField("default_sampling"):
        sampling = sampling_from_pb(raw.default_sampling)
    stop = _stop_strings(list(raw.default_stop))
    return b.Genesis(owners, sampling, raw.default_output_tokens_max, stop, raw.shares_pages)


def _stop_strings(raw: list[str]) -> tuple[str, ...]:
    if len(raw) > limits.STOP_STRINGS_MAX or not all(raw):
        raise BodyMalformed(f"at most {limits.STOP_STRINGS_MAX} stop strings, none empty")
    return tuple(raw)


def _change_from_pb(raw: pb.Member) -> b.Grant | b.Revocation:
    match raw.WhichOneof("change"):
        case "grant":
            return b.Grant(key_of(raw.grant.key, "a granted key"), raw.grant.role)
        case "revocation":
            if len(raw.revocation.cuts) > limits.CUTS_MAX:
                raise BodyMalformed(f"{len(raw.revocation.cuts)} cuts")
            cuts = tuple(
                b.Cut(c.epoch, c.track, c.seq, entry_id_of(c.id, "a cut"))
                for c in raw.revocation.cuts
            )
            return b.Revocation(key_of(raw.revocation.key, "a revoked key"), cuts)
        case _:
            raise BodyMalformed("a member entry makes no change this version knows")


def _request_from_pb(raw: pb.Request) -> b.Request:
    stop = _stop_strings(list(raw.stop))
    if len(raw.tool_name.encode()) > limits.TOOL_NAME_BYTES_MAX:
        raise BodyMalformed(f"a tool's name has at most {limits.TOOL_NAME_BYTES_MAX} bytes")
    return b.Request(
        host=key_of(raw.host, "the host key"),
        sampling=sampling_from_pb(raw.sampling),
        profile=digest_of(raw.profile, "the profile") if raw.profile else None,
        output_tokens_max=raw.output_tokens_max,
        stop=stop,
        executor=key_of(raw.executor, "the executor key") if raw.executor else None,
        membership_heads=_heads(list(raw.membership_heads)),
        answer_by_ms=raw.answer_by_ms,
        output_tokens_min=raw.output_tokens_min,
        stop_tokens=tuple(raw.stop_tokens),
        logprobs=raw.logprobs,
        response_format=_format_from_pb(raw),
        tool_choice=raw.tool_choice,
        tool_name=raw.tool_name,
        key=_key_from_pb(raw),
    )


def _format_from_pb(raw: pb.Request) -> b.ResponseFormat | None:
    kind = raw.WhichOneof("response_format")
    if kind is None:
        return None
    text = getattr(raw, kind)
    if not 1 <= len(text.encode()) <= limits.GRAMMAR_BYTES_MAX:
        raise BodyMalformed(f"a response format has 1 to {limits.GRAMMAR_BYTES_MAX} bytes")
    return b.ResponseFormat(b.FormatKind(kind), text)


def _seal_from_pb(raw: pb.Seal) -> b.Seal:
    if not 1 <= len(raw.entries) <= limits.SEAL_ENTRIES_MAX:
        raise BodyMalformed(f"a seal lists 1 to {limits.SEAL_ENTRIES_MAX} entries")
    if len(raw.tokens_per_entry) != len(raw.entries):
        raise BodyMalformed("tokens_per_entry and entries differ in length")
    return b.Seal(
        request=entry_id_of(raw.request, "the request"),
        prev_seal=entry_id_of(raw.prev_seal, "prev_seal") if raw.prev_seal else None,
        entries=tuple(entry_id_of(e, "a listed entry") for e in raw.entries),
        profile=digest_of(raw.profile, "the profile"),
        context_digest=digest_of(raw.context_digest, "context_digest"),
        render_digest=digest_of(raw.render_digest, "render_digest"),
        tokens_per_entry=tuple(raw.tokens_per_entry),
        membership_heads=_heads(list(raw.membership_heads)),
        projections=tuple(
            b.Projected(entry_id_of(p.entry, "a projected entry"), p.part_index, p.outcome)
            for p in raw.projections
        ),
    )


def _generation_from_pb(raw: pb.Generation) -> b.Generation:
    digests = {
        name: digest_of(getattr(raw, name), name) if getattr(raw, name) else None
        for name in _DIGEST_FIELDS
    }
    return b.Generation(
        token_ids=tuple(raw.token_ids),
        parts=parts_from_pb(list(raw.parts)),
        visible_bytes=raw.visible_bytes,
        finish_reason=raw.finish_reason,
        finish_detail=raw.finish_detail,
        usage=b.Usage(**{name: getattr(raw.usage, name) for name in _USAGE_FIELDS}),
        run=raw.run,
        logprobs=_logprobs_from_pb(raw),
        grammar_engine=raw.grammar_engine,
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


def _checkpoint_from_pb(raw: pb.Checkpoint) -> b.Checkpoint:
    if not 1 <= raw.tokens <= limits.CHECKPOINT_TOKENS_MAX:
        raise BodyMalformed(f"a checkpoint has 1 to {limits.CHECKPOINT_TOKENS_MAX} tokens")
    if not 1 <= raw.size_bytes <= limits.ARCHIVE_BYTES_MAX:
        raise BodyMalformed(f"an archive has 1 to {limits.ARCHIVE_BYTES_MAX} bytes")
    return b.Checkpoint(
        namespace=digest_of(raw.namespace, "the namespace"),
        lineage=digest_of(raw.lineage, "the lineage key"),
        tokens=raw.tokens,
        blob=digest_of(raw.blob, "a blob digest"),
        size_bytes=raw.size_bytes,
        expire_time_ms=raw.expire_time_ms,
    )
