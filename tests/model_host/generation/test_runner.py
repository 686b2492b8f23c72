"""One run from its first token to its generation, without a model: the runner is pure."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.errors import GrammarFailed
from model_host.generation import runner
from model_host.generation.calls import CallingText
from model_host.generation.planning import Plan
from model_host.generation.runner import Run
from model_host.generation.text import VisibleText
from model_host.grammar.grammar import Grammar, Vocabulary
from model_host.rendering.tool_formats import HERMES, LLAMA3
from model_host.sampling.state import SamplerState, allowed_ids
from replica.ids import EntryId
from replica.log.body import (
    FinishReason,
    FormatKind,
    ResponseFormat,
    Text,
    TokenLogprobs,
    ToolCall,
    Usage,
)
from tests.model_host.generation.test_text import Bytes as Decoder
from tests.model_host.planned import ANY, PROFILE, Scene
from tests.model_host.rendering.test_render import ENCODER, END


class Bytes:
    """Visible text of the byte tokenizer, with one stop string."""

    calls = ()
    hidden_bytes = 0

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


def new_run(planned: Plan, stop: bytes = b"") -> Run:
    state = SamplerState(
        planned.request,
        vocabulary=ENCODER.token_count,
        context=planned.prompt,
        output_index=planned.draw_offset,
        end_ids=(END,),
    )
    return Run(planned, EntryId(b"s" * 32), 9, state, Bytes(stop), 200)


def run_out(planned: Plan, ids: Sequence[int], stop: bytes = b"") -> Run:
    """Add the tokens `ids` until the run has finished."""
    return add(new_run(planned, stop), ids)


def add(run: Run, ids: Sequence[int]) -> Run:
    for token_id in ids:
        if run.finished is None:
            run.add_token(token_id)
    assert run.finished is not None
    return run


def test_a_run_ends_at_the_end_of_turn_token_which_enters_the_context_unseen():
    run = run_out(a_plan(), [*b"yes", END])
    assert run.finished[0] is FinishReason.STOP
    assert bytes(run.visible) == b"yes"
    assert run.token_ids[-1] == END
    assert run.sampler_state.output_index == len(run.token_ids)


def test_a_stop_token_ends_the_run_likewise():
    scene = Scene()
    run = run_out(scene.plan(scene.ask(stop_tokens=(ord("s"),))), b"yes")
    assert run.finished == (FinishReason.STOP, "stop token 115")
    assert bytes(run.visible) == b"ye"
    assert run.token_ids == list(b"yes")


def test_a_stop_string_ends_the_run_and_is_not_shown():
    run = run_out(a_plan(), list(b"yes##"), b"##")
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
        run = run_out(planned, [*b"x" * (rest - 2), *b"##"], b"##")
    else:
        run = run_out(scene.plan(scene.ask(output_tokens_max=5)), list(b"yes##"), b"##")
    assert run.finished == (FinishReason.STOP, "stop string '##'")
    assert not bytes(run.visible).endswith(b"#")


def test_bytes_held_back_are_shown_when_no_stop_string_came():
    run = run_out(a_plan(), [*b"yes#", END], b"##")
    assert bytes(run.visible) == b"yes#"


def test_the_request_limits_the_output():
    scene = Scene()
    run = run_out(scene.plan(scene.ask(output_tokens_max=2)), list(b"abcdef"))
    assert run.finished[0] is FinishReason.LENGTH
    assert run.token_ids == list(b"ab")


def test_a_full_context_ends_the_run():
    scene = Scene()
    planned = scene.plan(scene.ask())
    run = run_out(planned, list(b"x" * 300))
    assert run.finished[0] is FinishReason.CONTEXT_LIMIT
    assert len(planned.prompt) + len(run.token_ids) == 200


def test_the_tokens_left_follow_the_request_and_the_context():
    scene = Scene()
    limited = new_run(scene.plan(scene.ask(output_tokens_max=2)))
    limited.add_token(65)
    assert limited.tokens_left == 1
    free = new_run(a_plan())
    assert free.tokens_left == 200 - len(free.plan.prompt)


def test_a_cancelled_run_keeps_the_bytes_shown():
    run = new_run(a_plan())
    run.add_token(ord("a"))
    run.end(FinishReason.CANCELLED, "cancelled by a member")
    body = run.generation(Usage(prompt_tokens=3), ANY, profile=PROFILE, numerics_class=ANY)
    assert (body.token_ids, body.visible_bytes) == ((97,), 1)
    assert body.finish_reason == FinishReason.CANCELLED
    assert body.usage.output_tokens == 1


def test_a_cancelled_run_shows_the_bytes_held_back_for_a_stop_string():
    # The text of a continuation follows it directly.
    run = new_run(a_plan(), b"##")
    run.add_token(ord("a"))
    run.add_token(ord("#"))
    assert bytes(run.visible) == b"a"
    run.end(FinishReason.CANCELLED, "cancelled by a member")
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert (body.parts, body.visible_bytes) == ((Text("a#"),), 2)


def test_a_token_gives_the_bytes_it_makes_visible():
    run = new_run(a_plan(), b"##")
    assert [run.add_token(token) for token in b"a#b"] == [b"a", b"", b"#b"]


def test_journaled_tokens_give_the_same_generation():
    scene = Scene()
    planned = scene.plan(scene.ask())
    whole = run_out(planned, [*b"hello", END])
    resumed = new_run(planned)
    for token in whole.token_ids[:3]:
        resumed.add_token(token)
    add(resumed, whole.token_ids[3:])
    bodies = [
        r.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY) for r in (resumed, whole)
    ]
    assert bodies[0] == bodies[1]


def test_an_answer_ends_before_no_entry_could_hold_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "BODY_BYTES_MAX", 4096 + 60)
    run = run_out(a_plan(), list(b"x" * 100))
    assert run.finished == (FinishReason.LENGTH, "no entry holds more")
    assert 9 < len(run.token_ids) < 12


def test_an_answer_with_log_probabilities_ends_before_its_body_has_too_many_fields(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(runner, "BODY_FIELDS_MAX", 2048 + 40)
    run = new_run(a_plan())
    for _ in range(100):
        run.add_token(ord("x"), TokenLogprobs(0.0, (1,), (0.0,)))
        if run.finished is not None:
            break
    assert run.finished == (FinishReason.LENGTH, "no entry holds more")
    assert len(run.token_ids) == 11


def test_an_answer_of_white_space_that_may_begin_a_call_ends_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "BODY_BYTES_MAX", 4096 + 60)
    run = new_run(a_plan())
    run.text = CallingText(VisibleText(Decoder(), ()), LLAMA3)
    add(run, list(b" " * 100))
    assert run.finished == (FinishReason.LENGTH, "no entry holds more")
    assert 9 < len(run.token_ids) < 12


def test_a_run_under_another_profile_states_no_recipes():
    run = run_out(a_plan(), [*b"yes", END])
    own = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert own.sampler_digest == PROFILE.sampler_digest
    assert own.render_recipe_digest == PROFILE.render_recipe_digest
    other = run.generation(Usage(), ANY, profile=None, numerics_class=ANY)
    assert (other.sampler_digest, other.render_recipe_digest) == (None, None)


def test_log_probabilities_enter_the_generation():
    run = new_run(a_plan())
    recorded = [TokenLogprobs(-0.5, (97,), (-0.5,)), TokenLogprobs(-1.5, (98,), (-0.25,))]
    for token_id, logprobs in zip((97, END), recorded, strict=True):
        run.add_token(token_id, logprobs)
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert body.logprobs == tuple(recorded)


def calling_run(words: bytes, **limits: int) -> Run:
    scene = Scene()
    run = new_run(scene.plan(scene.ask(**limits)))
    run.text = CallingText(VisibleText(Decoder(), ()), HERMES)
    return add(run, [*words, END])


CALL = b'<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


def test_calls_are_parts_of_the_generation_and_its_reason():
    run = calling_run(b"Wait. " + CALL)
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    call_id = f"{run.plan.request_id.hex()[:24]}-0"
    assert body.parts == (Text("Wait. "), ToolCall(call_id, "f", '{"x": 1}'))
    assert body.finish_reason == FinishReason.TOOL_CALLS
    assert body.visible_bytes == len("Wait. ")
    assert body.token_ids == (*b"Wait. ", *CALL, END)


def test_an_answer_cut_off_in_a_call_can_be_continued():
    run = calling_run(b"Wait. " + CALL, output_tokens_max=30)
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert (body.parts, body.finish_reason) == ((Text("Wait. "),), FinishReason.LENGTH)


def test_an_answer_cut_off_behind_a_whole_call_does_not_end_with_it():
    run = calling_run(CALL + b" And more", output_tokens_max=len(CALL) + 4)
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert isinstance(body.parts[0], ToolCall)
    assert body.finish_reason == FinishReason.LENGTH


class ByteWords:
    """The byte tokenizer as grammars see it."""

    token_count = END + 1

    hides_space = False

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


VOCABULARY = Vocabulary(ByteWords(), {END})


def constrained_run(pattern: str, **request) -> Run:
    """Return a run whose answer matches a regular expression."""
    scene = Scene()
    wanted = ResponseFormat(FormatKind.REGEX, pattern)
    run = new_run(scene.plan(scene.ask(response_format=wanted, **request)))
    assert run.plan.grammar is not None
    run.grammar = Grammar(run.plan.grammar, VOCABULARY, run.plan.continued)
    return run


def write(run: Run, words: bytes) -> Run:
    """Write `words` as far as the masks allow, and then the last token that each allows."""
    while run.finished is None:
        mask = run.mask()
        assert mask is not None
        allowed = np.flatnonzero(allowed_ids(mask, END + 1)).tolist()
        wanted = words[len(run.token_ids) :][:1]
        run.add_token(wanted[0] if wanted and wanted[0] in allowed else allowed[-1])
    return run


def test_a_grammar_masks_every_choice_and_ends_the_run_when_it_is_complete():
    run = write(constrained_run("yes|no"), b"nope")
    assert run.token_ids == list(b"no")
    assert run.finished == (FinishReason.STOP, "the form is complete")


def test_a_run_without_a_grammar_has_no_mask():
    assert new_run(a_plan()).mask() is None


def test_a_turn_may_end_where_the_grammar_may():
    run = write(constrained_run("a+"), b"aaa")
    assert run.token_ids == [*b"aaa", END]
    assert run.finished == (FinishReason.STOP, "end of turn")


def test_a_stop_token_ends_an_answer_of_a_grammar_before_it_is_complete():
    run = write(constrained_run("[a-c]{5}", stop_tokens=(ord("b"),)), b"aab")
    assert run.finished == (FinishReason.STOP, "stop token 98")


def test_an_answer_of_a_grammar_names_its_engine_and_the_grammar():
    run = write(constrained_run("yes|no"), b"no")
    body = run.generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert body.grammar_engine == PROFILE.grammar_engine
    assert body.grammar_digest == run.plan.grammar.digest
    free = run_out(a_plan(), [END]).generation(Usage(), ANY, profile=PROFILE, numerics_class=ANY)
    assert (free.grammar_engine, free.grammar_digest) == ("", None)


def test_journaled_tokens_rebuild_the_state_of_a_grammar():
    whole = write(constrained_run("[a-c]{5}"), b"abcab")
    resumed = constrained_run("[a-c]{5}")
    for token_id in whole.token_ids[:3]:
        resumed.add_token(token_id)
    assert write(resumed, b"abcab").token_ids == whole.token_ids


def test_journaled_tokens_of_another_grammar_are_no_answer():
    with pytest.raises(GrammarFailed):
        constrained_run("[a-c]{5}").add_token(ord("x"))


def test_an_answer_that_fills_its_limit_with_the_last_token_of_its_form_is_complete():
    run = write(constrained_run("yes|no", output_tokens_max=2), b"no")
    assert run.finished == (FinishReason.STOP, "the form is complete")
