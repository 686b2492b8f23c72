"""One generation from its plan to its end, without a model: the runner is pure."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.calls import CallingText
from model_host.plan import Plan
from model_host.runner import Run
from model_host.text import VisibleText
from model_host.tool_formats import HERMES
from replica.conversation.drafts import DraftStream, Progress, extend_digest, start_digest
from replica.ids import EntryId
from replica.log.body import FinishReason, Text, ToolCall, Usage
from tests.model_host.planned import ANY, PROFILE, Scene
from tests.model_host.test_render import END
from tests.model_host.test_text import Bytes as Decoder


class Bytes:
    """Visible text of the byte tokenizer, with one stop string."""

    calls = ()

    def __init__(self, stop: bytes = b"") -> None:
        self.stop, self.held, self.stopped_by = stop, b"", None

    def push(self, token_id: int) -> bytes:
        self.held += bytes([token_id])
        if self.stop and self.held == self.stop:
            self.stopped_by = self.stop.decode()
            return b""
        if self.stop.startswith(self.held):
            return b""
        data, self.held = self.held, b""
        return data

    def finish(self, *, can_continue: bool) -> bytes:
        data, self.held = self.held, b""
        return data if self.stopped_by is None else b""


def a_plan() -> Plan:
    scene = Scene()
    return scene.plan(scene.ask())


def script(ids: Sequence[int]):
    """Return a sampler that reads from `ids` by output index."""
    return lambda _logits, _context, index: ids[index]


def new_run(planned: Plan, ids: Sequence[int], stop: bytes = b"") -> Run:
    return Run(planned, EntryId(b"s" * 32), 9, script(ids), Bytes(stop), frozenset({END}), 200)


def run_out(run: Run) -> Run:
    while run.finished is None:
        run.add_token(run.choose(np.zeros(2, np.float32)))
    return run


def test_progress_is_the_first_frame_of_a_draft_and_counts_the_prompt():
    planned = a_plan()
    run = new_run(planned, [])
    frame = run.progress(Usage(cached_tokens=3, restored_tokens=2), 5)
    assert frame.progress == Progress(len(planned.prompt), 3, 2, 5)
    stream = DraftStream(planned.conversation, planned.request_id, 9)
    assert stream.receive(frame)
    assert (stream.token_count, stream.byte_count) == (0, 0)


def test_a_run_ends_at_the_end_of_turn_token_which_enters_the_context_unseen():
    run = run_out(new_run(a_plan(), [*b"yes", END]))
    assert run.finished[0] is FinishReason.STOP
    assert bytes(run.visible) == b"yes"
    assert run.token_ids[-1] == END


def test_a_stop_string_ends_the_run_and_is_not_shown():
    run = run_out(new_run(a_plan(), list(b"yes##"), b"##"))
    assert run.finished == (FinishReason.STOP, "stop string '##'")
    assert bytes(run.visible) == b"yes"
    assert len(run.token_ids) == 5


@pytest.mark.parametrize("limit", ["output_tokens_max", "context"])
def test_a_stop_string_ended_by_the_last_token_allowed_is_a_stop(limit: str):
    # LENGTH could be continued, right behind the stop string.
    scene = Scene()
    if limit == "context":
        planned = scene.plan(scene.ask())
        rest = 200 - len(planned.prompt)
        run = run_out(new_run(planned, [*b"x" * (rest - 2), *b"##"], b"##"))
    else:
        run = run_out(new_run(scene.plan(scene.ask(output_tokens_max=5)), list(b"yes##"), b"##"))
    assert run.finished == (FinishReason.STOP, "stop string '##'")
    assert not bytes(run.visible).endswith(b"#")


def test_bytes_held_back_are_shown_when_no_stop_string_came():
    run = run_out(new_run(a_plan(), [*b"yes#", END], b"##"))
    assert bytes(run.visible) == b"yes#"


def test_the_request_limits_the_output():
    scene = Scene()
    run = run_out(new_run(scene.plan(scene.ask(output_tokens_max=2)), list(b"abcdef")))
    assert run.finished[0] is FinishReason.LENGTH
    assert run.token_ids == list(b"ab")


def test_a_full_context_ends_the_run():
    scene = Scene()
    planned = scene.plan(scene.ask())
    run = run_out(new_run(planned, list(b"x" * 300)))
    assert run.finished[0] is FinishReason.CONTEXT_LIMIT
    assert len(planned.prompt) + len(run.token_ids) == 200


def test_a_cancelled_run_keeps_the_bytes_shown():
    run = new_run(a_plan(), list(b"abc"))
    run.add_token(ord("a"))
    run.end(FinishReason.CANCELLED, "cancelled by a member")
    body = run.generation(Usage(prompt_tokens=3), profile=PROFILE, numerics_class=ANY)
    assert (body.token_ids, body.visible_bytes) == ((97,), 1)
    assert body.finish_reason == FinishReason.CANCELLED
    assert body.usage.output_tokens == 1


def test_a_cancelled_run_shows_the_bytes_held_back_for_a_stop_string():
    # The text of a continuation follows it directly.
    run = new_run(a_plan(), list(b"a#"), b"##")
    run.add_token(ord("a"))
    run.add_token(ord("#"))
    assert bytes(run.visible) == b"a"
    run.end(FinishReason.CANCELLED, "cancelled by a member")
    body = run.generation(Usage(), profile=PROFILE, numerics_class=ANY)
    assert (body.parts, body.visible_bytes) == ((Text("a#"),), 2)


def calling_run(words: bytes, **limits: int) -> Run:
    scene = Scene()
    planned = scene.plan(scene.ask(**limits))
    run = new_run(planned, [*words, END])
    run.text = CallingText(VisibleText(Decoder(), ()), HERMES)
    return run_out(run)


CALL = b'<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


def test_calls_are_parts_of_the_generation_and_its_reason():
    run = calling_run(b"Wait. " + CALL)
    body = run.generation(Usage(), profile=PROFILE, numerics_class=ANY)
    call_id = f"{run.plan.request_id.hex()[:24]}-0"
    assert body.parts == (Text("Wait. "), ToolCall(call_id, "f", '{"x": 1}'))
    assert body.finish_reason == FinishReason.TOOL_CALLS
    assert body.visible_bytes == len("Wait. ")
    assert body.token_ids == (*b"Wait. ", *CALL, END)
    assert b"".join(frame.data for frame in run.drafts) == b"Wait. "


def test_an_answer_cut_off_in_a_call_can_be_continued():
    run = calling_run(b"Wait. " + CALL, output_tokens_max=30)
    body = run.generation(Usage(), profile=PROFILE, numerics_class=ANY)
    assert (body.parts, body.finish_reason) == ((Text("Wait. "),), FinishReason.LENGTH)


def test_the_generation_commits_to_the_draft_stream():
    run = run_out(new_run(a_plan(), [*b"yes", END]))
    stream = DraftStream(run.plan.conversation, run.plan.request_id, run.run)
    assert all(stream.receive(frame) for frame in run.drafts)
    body = run.generation(Usage(), profile=PROFILE, numerics_class=ANY)
    assert (
        body.draft_digest
        == stream.digest
        == extend_digest(start_digest(run.plan.request_id, run.run), body.token_ids)
    )
    assert stream.data == b"yes"


def test_journaled_tokens_give_the_same_drafts_and_generation():
    scene = Scene()
    planned = scene.plan(scene.ask())
    whole = run_out(new_run(planned, [*b"hello", END]))
    resumed = new_run(planned, [*b"hello", END])
    for token in whole.token_ids[:3]:
        resumed.add_token(token)
    run_out(resumed)
    assert resumed.drafts == whole.drafts
    assert resumed.generation(Usage(), profile=PROFILE, numerics_class=ANY) == whole.generation(
        Usage(), profile=PROFILE, numerics_class=ANY
    )
