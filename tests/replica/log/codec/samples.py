"""Any header and any body, for the tests of reading and writing them."""

import math
from collections.abc import Callable

from hypothesis import strategies as st

from replica import limits
from replica.errors import AntiphonError
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.log import body as b
from replica.log.entry import Header
from replica.log.kinds import Kind, rules_of

SALT = bytes(16)
ids = st.binary(min_size=32, max_size=32)
optional_ids = st.none() | ids
uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
words = st.text(max_size=8)
enums = st.integers(0, 20)
doubles = st.floats(allow_nan=False).filter(lambda x: x != 0 or math.copysign(1, x) > 0)
heads = st.lists(ids, max_size=3, unique=True).map(lambda found: tuple(sorted(found)))
biases = st.lists(st.builds(b.LogitBias, uint32, doubles), max_size=3).map(tuple)
samplings = st.builds(
    b.Sampling, doubles, uint32, doubles, doubles, doubles, doubles, doubles, uint32, uint64,
    biases,
)  # fmt: skip
leaves = st.one_of(
    st.builds(b.Text, words),
    st.builds(b.Media, ids, uint64, words, uint32, uint32),
    st.builds(b.ToolCall, words, words, words),
    st.builds(b.ToolStarted, words, words),
    st.builds(b.Tokens, st.lists(uint32, max_size=4).map(tuple), ids),
    st.builds(
        b.Opaque, words, words, words, words, st.integers(0, 6), st.integers(0, 3), uint32, uint64,
        words, data=st.binary(max_size=8),
    ),
    st.builds(b.Opaque, words, blob=ids),
)  # fmt: skip
parts = st.recursive(
    leaves,
    lambda inner: st.builds(
        b.ToolResult, words, st.lists(inner, max_size=2).map(tuple), st.booleans()
    ),
    max_leaves=4,
)
formats = st.builds(
    b.ResponseFormat, st.sampled_from(b.FormatKind), st.text(min_size=1, max_size=8)
)
part_lists = st.lists(parts, max_size=3).map(tuple)
changes = st.one_of(
    st.builds(b.Grant, ids, enums),
    st.builds(b.Revocation, ids, st.lists(st.builds(b.Cut, uint64, enums, uint64, ids)).map(tuple)),
)


@st.composite
def seals(draw: st.DrawFn) -> b.Seal:
    entries = tuple(draw(st.lists(ids, min_size=1, max_size=3)))
    counts = draw(st.lists(uint32, min_size=len(entries), max_size=len(entries)))
    projected = draw(st.lists(st.builds(b.Projected, ids, uint32, enums), max_size=2))
    return b.Seal(
        draw(ids), draw(optional_ids), entries, draw(ids), draw(ids), draw(ids), tuple(counts),
        draw(heads), tuple(projected),
    )  # fmt: skip


floats = st.floats(allow_nan=False, width=32).filter(lambda x: x != 0 or math.copysign(1, x) > 0)


@st.composite
def logprobs(draw: st.DrawFn) -> b.TokenLogprobs:
    top = draw(st.lists(st.tuples(uint32, floats), max_size=3))
    return b.TokenLogprobs(draw(floats), tuple(i for i, _ in top), tuple(x for _, x in top))


@st.composite
def generations(draw: st.DrawFn) -> b.Generation:
    tokens = tuple(draw(st.lists(uint32, max_size=4)))
    size = draw(st.sampled_from([0, len(tokens)]))
    usage = st.builds(b.Usage, *[uint32] * 5, uint64, uint64)
    return b.Generation(
        tokens, draw(part_lists), draw(uint32), draw(enums), draw(words), draw(usage),
        *(draw(optional_ids) for _ in range(4)), draw(uint64),
        tuple(draw(st.lists(logprobs(), min_size=size, max_size=size))),
        draw(words), draw(optional_ids),
    )  # fmt: skip


bodies = st.one_of(
    st.builds(
        b.Genesis,
        st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple),
        st.none() | samplings,
        uint32,
        st.lists(st.text(min_size=1, max_size=4), max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(b.Member, changes),
    st.builds(b.Message, enums, part_lists, label=words),
    st.builds(b.Tools, st.lists(st.builds(b.ToolDefinition, words, words, words)).map(tuple)),
    st.builds(
        b.Request, ids, samplings, optional_ids, uint32,
        st.lists(st.text(min_size=1, max_size=4), max_size=3).map(tuple), optional_ids, heads,
        uint64, uint32, st.lists(uint32, max_size=3).map(tuple), uint32, st.none() | formats,
        enums, words,
    ),
    seals(),
    generations(),
    st.builds(b.Cancel, words),
    st.builds(
        b.Checkpoint, ids, ids, st.integers(1, 2**24), ids, st.integers(1, 2**30), uint64
    ),
    st.builds(b.DocumentUpdate, st.binary(max_size=8)),
    st.just(b.Join()),
)  # fmt: skip


@st.composite
def headers(draw: st.DrawFn) -> Header:
    seq = draw(st.integers(0, limits.CLOCK_MAX))
    kind = draw(
        st.sampled_from([k for k in Kind if k != Kind.GENESIS]) | st.integers(14, 2**31 - 1)
    )
    return Header(
        conversation=ConversationId(draw(ids)),
        author=PublicKey(draw(ids)),
        epoch=draw(st.integers(1, 2**64 - 1)),
        track=rules_of(kind).track or draw(st.integers(1, 3)),
        seq=seq,
        prev=EntryId(draw(ids)) if seq else None,
        parents=tuple(sorted(draw(st.sets(ids, min_size=1, max_size=4)))),
        basis=draw(optional_ids),
        lamport=draw(st.integers(0, limits.CLOCK_MAX)),
        kind=kind,
        critical=draw(st.booleans()),
        body_digest=Digest(draw(ids)),
        body_bytes=draw(st.integers(16, limits.BODY_BYTES_MAX)),
        create_time_ms=draw(uint64),
        conflict=draw(st.integers(0, 1)),
    )


def read_or_refusal(read: Callable[[bytes], object], data: bytes) -> object:
    """Return what is read, or the typed error; anything else that is raised fails the test."""
    try:
        return read(bytes(data))
    except AntiphonError as error:
        assert error.reason != AntiphonError.reason
        assert error.detail
        assert error.next_step
        return error
