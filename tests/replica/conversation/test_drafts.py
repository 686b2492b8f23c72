"""Drafts: signed frames, a running digest, gaps refused (spec/04-link §6)."""

import hashlib
import struct
from dataclasses import replace

import pytest

from replica.conversation.drafts import (
    Draft,
    DraftStream,
    Progress,
    extend_digest,
    sign_draft,
    start_digest,
    verify_draft,
)
from replica.ids import ConversationId, Digest, EntryId
from replica.limits import DRAFT_BYTES_MAX
from replica.refusals import SignatureInvalid
from spec.vectors.make.build import pae
from tests.support.writers import Writer

HOST = Writer(1)
CONVERSATION, REQUEST = ConversationId(b"c" * 32), EntryId(b"r" * 32)
RUN = 7


class Source:
    """A host that streams."""

    def __init__(self) -> None:
        """Start before the first token."""
        self.tokens = self.size = 0
        self.digest = start_digest(REQUEST, RUN)

    def frame(self, data: bytes = b"", *token_ids: int, progress: Progress | None = None) -> Draft:
        """Return the next frame."""
        self.digest = extend_digest(self.digest, token_ids)
        draft = Draft(
            CONVERSATION, REQUEST, RUN, self.tokens, token_ids, self.size, data, self.digest,
            progress=progress,
        )  # fmt: skip
        self.tokens += len(token_ids)
        self.size += len(data)
        return sign_draft(draft, HOST.key)


@pytest.fixture
def stream() -> DraftStream:
    return DraftStream(CONVERSATION, REQUEST, RUN)


def test_frames_in_order_add_up(stream: DraftStream) -> None:
    source = Source()
    assert stream.receive(source.frame(b"He", 1, 2))
    assert stream.receive(source.frame(b"", 3))
    assert stream.receive(source.frame(b"llo"))
    assert (stream.data, stream.token_ids) == (b"Hello", (1, 2, 3))
    assert (stream.token_count, stream.byte_count) == (3, 5)
    assert stream.digest == source.digest


def test_the_running_digest_does_not_depend_on_framing() -> None:
    start = start_digest(REQUEST, RUN)
    assert extend_digest(extend_digest(start, (1,)), (2, 3)) == extend_digest(start, (1, 2, 3))
    assert start_digest(REQUEST, RUN + 1) != start


def test_an_old_frame_and_a_gap_are_refused(stream: DraftStream) -> None:
    source = Source()
    first, second, third = (source.frame(b"x", i) for i in range(3))
    assert stream.receive(first)
    assert not stream.receive(first)
    assert not stream.receive(third)
    assert stream.receive(second)
    assert stream.receive(third)


@pytest.mark.parametrize("offset", ["token_offset", "byte_offset"])
def test_an_offset_that_does_not_follow_is_refused_though_the_digest_is_right(
    stream: DraftStream, offset: str
) -> None:
    source = Source()
    assert stream.receive(source.frame(b"He", 1))
    second = source.frame(b"llo", 2)
    for change in (-1, 1, 5):
        elsewhere = replace(second, **{offset: getattr(second, offset) + change})
        assert not stream.receive(elsewhere)
    assert stream.data == b"He"
    assert stream.receive(second)


def test_a_wrong_digest_is_refused(stream: DraftStream) -> None:
    frame = Source().frame(b"x", 1)
    assert not stream.receive(replace(frame, digest=Digest(bytes(32))))
    assert not stream.receive(replace(frame, token_ids=(2,)))
    assert stream.frames == []


def test_progress_is_replaced_and_ends_with_the_first_token(stream: DraftStream) -> None:
    source = Source()
    assert stream.receive(source.frame(progress=Progress(9, 0, 0, 3)))
    newest = source.frame(progress=Progress(9, 0, 0, 6))
    assert stream.receive(newest)
    assert stream.frames == [newest]
    first = source.frame(b"x", 1)
    assert stream.receive(first)
    assert stream.frames == [first]


def test_progress_after_the_first_token_erases_nothing(stream: DraftStream) -> None:
    source = Source()
    assert stream.receive(source.frame(b"Hello", 1))
    assert not stream.receive(source.frame(progress=Progress(9, 0, 0, 9)))
    assert stream.data == b"Hello"


def test_a_stream_stops_growing_at_its_bound(stream: DraftStream) -> None:
    source = Source()
    assert stream.receive(source.frame(bytes(DRAFT_BYTES_MAX - 640), 1))
    assert not stream.receive(source.frame(b"x", 2))


def test_a_signature_covers_every_field_but_progress() -> None:
    frame = Source().frame(b"Hello", 1, progress=Progress(1, 0, 0, 1))
    verify_draft(frame, HOST.public)
    verify_draft(replace(frame, progress=None), HOST.public)
    for changed in (
        {"conversation": ConversationId(b"d" * 32)},
        {"request": EntryId(b"q" * 32)},
        {"run": 8},
        {"token_offset": 1},
        {"token_ids": (1, 1)},
        {"byte_offset": 1},
        {"data": b"hello"},
        {"digest": Digest(bytes(32))},
    ):
        with pytest.raises(SignatureInvalid):
            verify_draft(replace(frame, **changed), HOST.public)
    with pytest.raises(SignatureInvalid):
        verify_draft(frame, Writer(2).public)


def test_digest_and_signature_are_of_the_bytes_the_chapter_names() -> None:
    digest = hashlib.sha256(start_digest(REQUEST, RUN) + b"\x02\x01\x00\x00").digest()
    assert extend_digest(start_digest(REQUEST, RUN), (258,)) == digest
    frame = Source().frame(b"Hello", 258)
    numbers = struct.pack("<QIII", RUN, 0, 1, 0)
    content = CONVERSATION + REQUEST + numbers + hashlib.sha256(b"Hello").digest() + digest
    assert frame.signature == HOST.key.sign(pae("antiphon/v1/draft", content))


@pytest.mark.parametrize(
    ("size", "fits"), [(DRAFT_BYTES_MAX - 640, True), (DRAFT_BYTES_MAX - 639, False)]
)
def test_a_frame_counts_its_bytes_its_tokens_and_its_fields(
    stream: DraftStream, size: int, fits: bool
) -> None:
    assert stream.receive(Source().frame(bytes(size), 1)) == fits


def test_text_without_tokens_is_no_progress_and_is_kept(stream: DraftStream) -> None:
    source = Source()
    assert stream.receive(source.frame(b"He"))
    assert not stream.receive(source.frame(progress=Progress(9, 0, 0, 9)))
    assert stream.receive(source.frame(b"y", 1))
    assert stream.data == b"Hey"
