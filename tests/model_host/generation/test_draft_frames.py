"""The frames of a run: gathered tokens, one signature each (spec/04-link §6)."""

import random

import pytest

from model_host.generation.draft_frames import DraftFrames
from model_host.sampling import Choice
from replica.conversation.drafts import (
    Draft,
    DraftStream,
    Progress,
    extend_digest,
    sign_draft,
    start_digest,
    verify_draft,
)
from replica.ids import ConversationId, EntryId
from replica.log.body import Usage
from tests.support.writers import Writer

HOST = Writer(2)
CONVERSATION, REQUEST, RUN = ConversationId(b"c" * 32), EntryId(b"r" * 32), 9


def frames() -> DraftFrames:
    return DraftFrames(CONVERSATION, REQUEST, RUN, lambda frame: sign_draft(frame, HOST.key))


def stream() -> DraftStream:
    return DraftStream(CONVERSATION, REQUEST, RUN)


def test_a_frame_has_the_tokens_gathered_since_the_one_before():
    made = frames()
    made.add(Choice(5), b"a")
    first = made.take()
    made.add(Choice(6), b"")
    made.add(Choice(7), b"bc")
    assert made.gathered == [Choice(6), Choice(7)]
    second = made.take()
    assert made.gathered == []
    assert (first.token_offset, first.token_ids, first.byte_offset, first.data) == (
        0,
        (5,),
        0,
        b"a",
    )
    assert (second.token_offset, second.token_ids) == (1, (6, 7))
    assert (second.byte_offset, second.data) == (1, b"bc")
    assert made.frames == [first, second]
    assert made.digest == extend_digest(start_digest(REQUEST, RUN), (5, 6, 7))


def test_each_frame_is_signed_when_it_is_made():
    made = frames()
    made.add(Choice(5), b"a")
    verify_draft(made.take(), HOST.public)
    verify_draft(made.progress(7, Usage(), 0), HOST.public)


def test_progress_comes_before_the_first_token_and_is_not_kept():
    made, reader = frames(), stream()
    frame = made.progress(10, Usage(cached_tokens=3, restored_tokens=2), 5)
    assert frame.progress == Progress(10, 3, 2, 5)
    assert reader.receive(frame)
    assert (reader.token_count, reader.byte_count) == (0, 0)
    assert made.frames == []


def test_an_empty_frame_is_never_made():
    with pytest.raises(AssertionError, match="a frame has tokens"):
        frames().take()


@pytest.mark.parametrize("seed", range(50))
def test_a_reader_of_both_runs_of_a_host_reads_every_token_once(seed: int):
    """The host crashes and resumes: journaled tokens are framed singly, then gathered again."""
    dice, reader = random.Random(seed), stream()
    tokens = [(Choice(dice.randrange(99)), b"x" * dice.randrange(3)) for _ in range(40)]

    def run(known: int, until: int) -> list[Draft]:
        made = frames()
        for index, (choice, shown) in enumerate(tokens[:until]):
            made.add(choice, shown)
            if index < known or dice.random() < 0.4:
                made.take()
        if made.gathered:
            made.take()
        return made.frames

    journaled = dice.randrange(1, 40)
    before = run(0, journaled)
    for frame in before[: dice.randrange(len(before) + 1)]:
        assert reader.receive(frame)
    for frame in run(journaled, 40):
        reader.receive(frame)
    assert reader.token_count == 40
    assert reader.data == b"".join(shown for _, shown in tokens)
