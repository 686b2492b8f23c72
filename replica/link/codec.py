"""Link messages between bytes and dataclasses (spec/04-link).

No input is trusted to be well-formed: a frame that does not parse raises
FrameMalformed, with a text that repeats none of the input. Frames omit the
fields that other frames or headers state (DECISIONS D27).
"""

from collections.abc import Iterable
from typing import Literal, cast

from antiphon.v1 import errors_pb2, log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.conversation import Draft, Progress, TokenIds
from replica.errors import EntryRefused
from replica.ids import (
    ID_BYTES,
    KEY_BYTES,
    ConversationId,
    Digest,
    EntryId,
    Lane,
    Position,
    PublicKey,
)
from replica.limits import FRAME_BYTES_MAX, METADATA_BYTES_MAX
from replica.link import messages as m
from replica.link.item_bounds import check_steps
from replica.link.steps import STEP_ENTRIES, STEP_HEADS, Steps, finished
from replica.log import (
    entry_from_pb,
    entry_id,
    entry_to_pb,
    parse,
    sampling_from_pb,
    sampling_to_pb,
)
from replica.refusals import FrameMalformed, FrameTooLarge

Direction = Literal["to_hub", "to_client"]

_WRAPPERS: dict[Direction, type[pb.LinkRequest] | type[pb.LinkResponse]] = {
    "to_hub": pb.LinkRequest,
    "to_client": pb.LinkResponse,
}


_MISSING_MAX = METADATA_BYTES_MAX // (2 * ID_BYTES)
"""Ids that a fault names; of more that a peer names the first ones count, as each is looked for."""


def _id(value: bytes) -> bytes:
    if len(value) != ID_BYTES:
        raise FrameMalformed(f"an id has {ID_BYTES} bytes, not {len(value)}")
    return value


def _conversation(value: bytes) -> ConversationId:
    return ConversationId(_id(value))


def _key(value: bytes) -> PublicKey:
    if len(value) != KEY_BYTES:
        raise FrameMalformed(f"a key has {KEY_BYTES} bytes, not {len(value)}")
    return PublicKey(value)


def heads_to_pb(heads: Iterable[Position]) -> list[pb.LaneHead]:
    """Encode positions."""
    return [
        pb.LaneHead(
            author=head.lane.author,
            epoch=head.lane.epoch,
            track=cast("log_pb2.Track.ValueType", head.lane.track),
            seq=head.seq,
            id=head.id,
        )
        for head in heads
    ]


def encoded_steps(heads: tuple[Position, ...]) -> Steps[m.EncodedHeads]:
    """Encode heads for an Open or Opened, in steps of some milliseconds."""
    data = []
    for at in range(0, len(heads), STEP_HEADS):
        part = pb.Opened()
        _put_heads(part, heads[at : at + STEP_HEADS])
        data.append(part.SerializeToString())
        yield
    return m.EncodedHeads(heads, b"".join(data))


def _put_heads(raw: pb.Open | pb.Opened, heads: tuple[Position, ...] | None) -> None:
    if isinstance(heads, m.EncodedHeads):
        raw.MergeFromString(heads.data)
        return
    for lane, seq, id_ in heads or ():
        track = cast("log_pb2.Track.ValueType", lane.track)
        raw.heads.add(author=lane.author, epoch=lane.epoch, track=track, seq=seq, id=id_)


def heads_from_pb(raw: Iterable[pb.LaneHead]) -> tuple[Position, ...]:
    """Decode positions."""
    return finished(heads_steps(raw))


def heads_steps(raw: Iterable[pb.LaneHead]) -> Steps[tuple[Position, ...]]:
    """Decode positions, in steps of some milliseconds."""
    heads = []
    for index, h in enumerate(raw, 1):
        lane = Lane(_key(h.author), h.epoch, h.track)
        heads.append(Position(lane, h.seq, EntryId(_id(h.id))))
        if index % STEP_HEADS == 0:
            yield
    return tuple(heads)


def fault_to_pb(fault: m.Fault) -> errors_pb2.Fault:
    """Encode a fault, cut so that it fits the peer's metadata limits."""
    return errors_pb2.Fault(
        reason=fault.reason,
        detail=fault.detail[:500],
        next_step=fault.next_step[:500],
        retryable=fault.retryable,
        conversation=fault.conversation or b"",
        entry=fault.entry or b"",
        missing=fault.missing[:_MISSING_MAX],
        retry_after_ms=fault.retry_after_ms,
    )


def fault_from_pb(raw: errors_pb2.Fault) -> m.Fault:
    """Decode a fault."""
    return m.Fault(
        raw.reason,
        raw.detail,
        raw.next_step,
        raw.retryable,
        _conversation(raw.conversation) if raw.conversation else None,
        EntryId(_id(raw.entry)) if raw.entry else None,
        tuple(EntryId(_id(i)) for i in raw.missing[:_MISSING_MAX]),
        raw.retry_after_ms,
    )


def profile_to_pb(profile: m.ProfileInfo) -> pb.ProfileInfo:
    """Encode the short form of a profile."""
    return pb.ProfileInfo(
        digest=profile.digest,
        name=profile.name,
        context_tokens_max=profile.context_tokens_max,
        sampling=sampling_to_pb(profile.sampling) if profile.sampling is not None else None,
        numerics=profile.numerics,
    )


def profile_from_pb(raw: pb.ProfileInfo) -> m.ProfileInfo:
    """Decode the short form of a profile."""
    sampling = sampling_from_pb(raw.sampling) if raw.HasField("sampling") else None
    digest = Digest(_id(raw.digest))
    return m.ProfileInfo(digest, raw.name, raw.context_tokens_max, sampling, raw.numerics)


def host_to_pb(host: m.HostInfo) -> pb.HostInfo:
    """Encode a host's description of itself."""
    profiles = [profile_to_pb(p) for p in host.profiles]
    return pb.HostInfo(key=host.key, address=host.address, profiles=profiles)


def host_from_pb(raw: pb.HostInfo) -> m.HostInfo:
    """Decode a host's description of itself."""
    profiles = tuple(map(profile_from_pb, raw.profiles))
    return m.HostInfo(_key(raw.key), raw.address, profiles)


def linked_host_to_pb(host: m.LinkedHost) -> pb.LinkedHost:
    """Encode a linked host."""
    return pb.LinkedHost(info=host_to_pb(host.info), vouched=host.vouched)


def linked_host_from_pb(raw: pb.LinkedHost) -> m.LinkedHost:
    """Decode a linked host."""
    return m.LinkedHost(host_from_pb(raw.info), raw.vouched)


def hello_to_pb(message: m.Hello) -> pb.Hello:
    """Encode a client's greeting."""
    return pb.Hello(
        versions=message.versions,
        features=message.features,
        follow=message.follow,
        host=host_to_pb(message.host) if message.host else None,
    )


def welcome_to_pb(message: m.Welcome) -> pb.Welcome:
    """Encode a hub's greeting."""
    return pb.Welcome(
        version=message.version,
        features=message.features,
        hub_key=message.hub_key,
        frame_bytes_max=message.frame_bytes_max,
        credit_bytes=message.credit_bytes,
        idle_timeout_ms=message.idle_timeout_ms,
        hosts=[linked_host_to_pb(h) for h in message.hosts],
    )


def draft_to_pb(draft: Draft) -> pb.Draft:
    """Encode a draft."""
    progress = draft.progress
    return pb.Draft(
        conversation=draft.conversation,
        request=draft.request,
        run=draft.run,
        token_offset=draft.token_offset,
        token_ids=draft.token_ids,
        byte_offset=draft.byte_offset,
        data=draft.data,
        digest=draft.digest,
        signature=draft.signature,
        progress=None
        if progress is None
        else pb.Progress(
            prompt_tokens=progress.prompt_tokens,
            cached_tokens=progress.cached_tokens,
            restored_tokens=progress.restored_tokens,
            prefilled_tokens=progress.prefilled_tokens,
        ),
    )


def draft_from_pb(raw: pb.Draft) -> Draft:
    """Decode a draft; `accept_draft` checks its signature, since it knows the host."""
    p = raw.progress
    return Draft(
        _conversation(raw.conversation),
        EntryId(_id(raw.request)),
        raw.run,
        raw.token_offset,
        TokenIds(raw.token_ids),
        raw.byte_offset,
        raw.data,
        Digest(_id(raw.digest)),
        raw.signature,
        Progress(p.prompt_tokens, p.cached_tokens, p.restored_tokens, p.prefilled_tokens)
        if raw.HasField("progress")
        else None,
    )


def entries_to_pb(message: m.Entries) -> pb.Entries:
    """Encode entries, bytes unchanged; the first header names the conversation."""
    named = bool(message.entries) and message.entries[0].conversation == message.conversation
    return pb.Entries(
        conversation=b"" if named else message.conversation,
        entries=[entry_to_pb(e) for e in message.entries],
    )


def _listing_item(raw: pb.ListingItem) -> m.ListingItem:
    creator = _key(raw.creator) if raw.creator else None
    return m.ListingItem(_conversation(raw.conversation), creator, raw.awaited)


def listing_to_pb(message: m.Listing) -> pb.Listing:
    """Encode a listing."""
    items = [
        pb.ListingItem(conversation=i.conversation, creator=i.creator or b"", awaited=i.awaited)
        for i in message.items
    ]
    return pb.Listing(items=items)


def _fields(message: m.Message) -> dict[str, object]:
    """Return the oneof field name and value of a message."""
    match message:
        case m.Hello():
            return {"hello": hello_to_pb(message)}
        case m.Welcome():
            return {"welcome": welcome_to_pb(message)}
        case m.Open(conversation, digest, heads, drafts, number):
            opening = pb.Open(
                conversation=conversation,
                digest=digest,
                with_heads=heads is not None,
                drafts=drafts,
                number=number,
            )
            _put_heads(opening, heads)
            return {"open": opening}
        case m.Opened(conversation, digest, equal, heads, number):
            opened = pb.Opened(
                conversation=conversation,
                digest=digest,
                equal=equal,
                with_heads=heads is not None,
                number=number,
            )
            _put_heads(opened, heads)
            return {"opened": opened}
        case m.Ids(conversation, ids, more, answer):
            joined = b"".join(ids)
            raw_ids = pb.Ids(conversation=conversation, ids=joined, more=more, answer=answer)
            return {"ids": raw_ids}
        case m.Entries():
            return {"entries": entries_to_pb(message)}
        case m.Ack(conversation, ids):
            return {"ack": pb.Ack(conversation=conversation, ids=b"".join(ids))}
        case Draft():
            return {"draft": draft_to_pb(message)}
        case m.Credit(limit_bytes):
            return {"credit": pb.Credit(limit_bytes=limit_bytes)}
        case m.Fault():
            return {"fault": fault_to_pb(message)}
        case m.Close(conversation_or_none, fault):
            close = pb.Close(
                conversation=conversation_or_none or b"",
                fault=fault_to_pb(fault) if fault else None,
            )
            return {"close": close}
        case m.Ping(nonce, sent_bytes):
            return {"ping": pb.Ping(nonce=nonce, sent_bytes=sent_bytes)}
        case m.Pong(nonce, sent_bytes, limit_bytes):
            pong = pb.Pong(nonce=nonce, sent_bytes=sent_bytes, limit_bytes=limit_bytes)
            return {"pong": pong}
        case m.Listing():
            return {"listing": listing_to_pb(message)}


def encode_frame(message: m.Message, direction: Direction) -> bytes:
    """Encode a message for the stream in that direction."""
    frame = _WRAPPERS[direction](**_fields(message))  # type: ignore[arg-type]  # one oneof field
    return frame.SerializeToString()


def decode_frame(data: bytes, direction: Direction) -> m.Message:
    """Decode one frame. Raises FrameTooLarge or FrameMalformed."""
    return finished(decode_steps(data, direction))


def decode_steps(data: bytes, direction: Direction) -> Steps[m.Message]:
    """Decode one frame in steps of some milliseconds. Raises FrameTooLarge or FrameMalformed."""
    if len(data) > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"the frame has {len(data)} bytes")
    yield from check_steps(data, _WRAPPERS[direction].DESCRIPTOR)
    raw = parse(_WRAPPERS[direction], data, FrameMalformed)
    name = raw.WhichOneof("message")
    if name is None:
        raise FrameMalformed("the frame holds no message this version knows")
    content = getattr(raw, name)
    if isinstance(content, pb.Entries):
        return (yield from entries_steps(content))
    if isinstance(content, pb.Open):
        return (yield from _open_steps(content))
    return _read(name, content)


def _open_steps(raw: pb.Open) -> Steps[m.Open]:
    conversation, digest = _conversation(raw.conversation), Digest(_id(raw.digest))
    heads = (yield from heads_steps(raw.heads)) if raw.with_heads else None
    return m.Open(conversation, digest, heads, raw.drafts, raw.number)


def _read(name: str, raw: object) -> m.Message:
    match raw:
        case pb.Hello():
            host = host_from_pb(raw.host) if raw.HasField("host") else None
            return m.Hello(tuple(raw.versions), tuple(raw.features), raw.follow, host)
        case pb.Welcome():
            return _welcome(raw)
        case pb.Opened():
            digest = Digest(_id(raw.digest))
            conversation = _conversation(raw.conversation)
            heads = heads_from_pb(raw.heads) if raw.with_heads else None
            return m.Opened(conversation, digest, raw.equal, heads, raw.number)
        case pb.Ids():
            ids = _split_ids(raw.ids)
            return m.Ids(_conversation(raw.conversation), ids, raw.more, raw.answer)
        case pb.Ack():
            return m.Ack(_conversation(raw.conversation), _split_ids(raw.ids))
        case pb.Draft():
            return draft_from_pb(raw)
        case pb.Credit():
            return m.Credit(raw.limit_bytes)
        case errors_pb2.Fault():
            return fault_from_pb(raw)
        case pb.Close():
            conv = _conversation(raw.conversation) if raw.conversation else None
            return m.Close(conv, fault_from_pb(raw.fault) if raw.HasField("fault") else None)
        case pb.Ping():
            return m.Ping(raw.nonce, raw.sent_bytes)
        case pb.Pong():
            return m.Pong(raw.nonce, raw.sent_bytes, raw.limit_bytes)
        case pb.Listing():
            return m.Listing(tuple(map(_listing_item, raw.items)))
        case _:
            raise AssertionError(f"no dataclass for {name}")


def _welcome(raw: pb.Welcome) -> m.Welcome:
    return m.Welcome(
        raw.version,
        _key(raw.hub_key),
        raw.frame_bytes_max,
        raw.credit_bytes,
        raw.idle_timeout_ms,
        tuple(raw.features),
        tuple(linked_host_from_pb(h) for h in raw.hosts),
    )


def _split_ids(joined: bytes) -> tuple[EntryId, ...]:
    if len(joined) % ID_BYTES:
        raise FrameMalformed(f"ids have {ID_BYTES} bytes each")
    return tuple(EntryId(joined[at : at + ID_BYTES]) for at in range(0, len(joined), ID_BYTES))


def entries_from_pb(raw: pb.Entries | pb.PushRequest) -> m.Entries:
    """Decode entries; one that breaks a rule goes to `refused` with that rule's error.

    Raises that error if no other entry and no field names the conversation.
    """
    return finished(entries_steps(raw))


def entries_steps(raw: pb.Entries | pb.PushRequest) -> Steps[m.Entries]:
    """Decode entries as `entries_from_pb` does, in steps of some milliseconds."""
    good, refused = [], []
    for index, item in enumerate(raw.entries, 1):
        if index % STEP_ENTRIES == 0:
            yield
        try:
            good.append(entry_from_pb(item))
        except EntryRefused as error:
            # Its traceback holds this list: a cycle, which would stay until a pass for garbage.
            refused.append((entry_id(item.header), error.with_traceback(None)))
    named = raw.conversation or (good[0].conversation if good else b"")
    if not named and refused:
        raise refused[0][1]
    return m.Entries(_conversation(named), tuple(good), tuple(refused))
