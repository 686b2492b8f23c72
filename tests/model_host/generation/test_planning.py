"""From a request whose turn has come to its seal and prompt, or a refusal."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from model_host.generation.planning import gather, plan, standing
from model_host.refusals import (
    BodyUnavailable,
    ContextTooLong,
    ObligationsOpen,
    ProfileUnknown,
    SealTooLarge,
    TokensForeign,
    ToolChoiceInvalid,
)
from model_host.rendering import Contexts, Renderer, Template
from replica.conversation.author import Author
from replica.ids import Digest, short
from replica.limits import SEAL_ENTRIES_MAX
from replica.log.body import (
    Cancel,
    FinishReason,
    Generation,
    Grant,
    Member,
    Need,
    Opaque,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    Tools,
)
from replica.log.body import Message as Said
from tests.model_host.planned import ANY, PROFILE, Scene
from tests.model_host.rendering.test_render import ENCODER, END, RENDERER, TEMPLATE
from tests.support.call_count import calls
from tests.support.writers import Writer, said

LONG = replace(PROFILE, context_tokens_max=100_000)
NAIVE = Renderer(TEMPLATE, ENCODER, None)
"""The template as any other, though it is local."""
REWRITING = Renderer.load(
    Template("{% for m in messages %}{{ (messages|length|string) + m['content'] }}{% endfor %}"),
    ENCODER,
)


def test_a_plan_seals_the_list_of_the_rule_of_coverage():
    scene = Scene()
    request = scene.ask()
    planned = scene.plan(request)
    seal_id = scene.host_writes(planned.seal, request)
    assert seal_id in scene.held.order.nodes
    assert sum(planned.seal.tokens_per_entry) == len(planned.prompt)


def test_a_second_seal_counts_the_tokens_of_its_own_entries_only():
    scene = Scene()
    first = scene.ask()
    planned = scene.plan(first)
    seal_id = scene.host_writes(planned.seal, first)
    answer = Generation((ord("y"), END), (Text("y"),), 1, FinishReason.STOP)
    scene.host_writes(answer, seal_id)
    second = scene.plan(scene.ask("more"))
    assert len(second.seal.tokens_per_entry) == len(second.seal.entries) == 3
    assert second.seal.tokens_per_entry[0] == 2
    assert second.prompt[: len(planned.prompt)] == planned.prompt


def test_a_seal_states_the_treatment_of_opaque_parts_of_its_own_entries_only():
    scene = Scene()
    dropped = Opaque("example.org", need=Need.DROPPABLE, data=b"x")
    message = scene.add(Said(Speaker.USER, (Text("hi"), dropped)), [scene.genesis])
    first = scene.add(Request(scene.host.public, Sampling()), [message]).id
    sealed = scene.plan(first).seal
    assert [projection.entry for projection in sealed.projections] == [message.id]
    answer = Generation((ord("y"), END), (Text("y"),), 1, FinishReason.STOP)
    scene.host_writes(answer, scene.host_writes(sealed, first))
    assert scene.plan(scene.ask("more")).seal.projections == ()


def test_a_continuation_draws_from_where_the_answer_ended():
    scene = Scene()
    first = scene.ask()
    seal_id = scene.host_writes(scene.plan(first).seal, first)
    cut = Generation((97, 98), (Text("ab"),), 2, FinishReason.LENGTH)
    answer = scene.host_writes(cut, seal_id)
    seal = scene.held.log.entries[seal_id]
    body = Request(scene.host.public, Sampling())
    request = scene.add(body, [scene.held.log.entries[answer]], seal)
    planned = scene.plan(request.id)
    assert planned.draw_offset == 2
    assert planned.prompt[-2:] == (97, 98)
    assert planned.continued == (97, 98)


def test_a_request_after_a_finished_answer_draws_from_the_start():
    scene = Scene()
    first = scene.ask()
    seal_id = scene.host_writes(scene.plan(first).seal, first)
    done = Generation((97, 98, END), (Text("ab"),), 2, FinishReason.STOP)
    answer = scene.host_writes(done, seal_id)
    seal = scene.held.log.entries[seal_id]
    request = scene.add(
        Request(scene.host.public, Sampling()), [scene.held.log.entries[answer]], seal
    )
    planned = scene.plan(request.id)
    assert planned.draw_offset == 0
    assert planned.continued == ()


def test_an_answer_that_another_template_was_rendered_for_refuses_the_request():
    scene = Scene()
    first = scene.ask()
    plain = Template("{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}")
    other = Renderer.load(plain, ENCODER)
    seal_id = scene.host_writes(scene.plan(first, other).seal, first)
    # Each of its ids is in this vocabulary too.
    answer = Generation((97, 98), (Text("ab"),), 2, FinishReason.STOP)
    answer_id = scene.host_writes(answer, seal_id)
    second = scene.ask("more")
    with pytest.raises(TokensForeign, match=short(answer_id)):
        scene.plan(second)
    assert scene.plan(second, other).prompt


def test_an_answer_without_tokens_needs_no_rendering_of_its_own():
    scene = Scene()
    first = scene.ask()
    seal = replace(scene.plan(first).seal, render_digest=ANY)
    seal_id = scene.host_writes(seal, first)
    scene.host_writes(Generation((), (), 0, FinishReason.INTERRUPTED), seal_id)
    assert scene.plan(scene.ask("again")).prompt


def test_an_answer_merged_in_from_another_branch_is_judged_by_its_own_context():
    scene = Scene()
    first = scene.ask("left")
    left = scene.host_writes(scene.plan(first).seal, first)
    ids = (97, END)
    one = scene.host_writes(Generation(ids, (Text("a"),), 1, FinishReason.STOP), left)
    said_too = scene.add(said("right"), [scene.genesis])
    ask = scene.add(Request(scene.host.public, Sampling()), [said_too])
    right = scene.host_writes(scene.plan(ask.id).seal, ask.id)
    two = scene.host_writes(Generation(ids, (Text("a"),), 1, FinishReason.STOP), right)
    entries = scene.held.log.entries
    both = scene.add(
        said("both"), sorted([entries[one], entries[two]], key=lambda e: e.id), entries[left]
    )
    request = scene.add(Request(scene.host.public, Sampling()), [both], entries[left])
    planned = scene.plan(request.id)
    assert two in planned.seal.entries
    assert planned.prompt.count(97) >= 2


def test_a_seal_planned_from_a_kept_context_is_the_one_planned_from_scratch():
    for seed in range(15):
        scene, walk = Scene(), Random(seed)
        for renderer in (RENDERER, REWRITING):
            contexts = Contexts()
            for _ in range(8):
                ready = scene.random_turn(walk)
                scratch = scene.plan_of(ready, renderer, profile=LONG)
                kept = scene.plan_of(ready, renderer, contexts, profile=LONG)
                assert (kept.seal, kept.prompt, kept.draw_offset) == (
                    scratch.seal, scratch.prompt, scratch.draw_offset,
                )  # fmt: skip
                # The same literals, looked up by pair or split from the whole context.
                if renderer is RENDERER:
                    assert scene.plan_of(ready, NAIVE, profile=LONG).seal == scratch.seal
                scene.answer_at_random(walk, kept, contexts)
            scene = Scene()


@pytest.mark.parametrize("renderer", [RENDERER, NAIVE])
def test_a_turn_costs_what_is_new_with_a_local_template(renderer: Renderer):
    def turn(count: int) -> Callable[[], object]:
        scene, contexts = Scene(), Contexts()
        for _ in range(count):
            request = scene.ask()
            planned = scene.plan_of(scene.ready(request), renderer, contexts, LONG)
            seal_id = scene.host_writes(planned.seal, request)
            contexts.keep(seal_id, planned.context)
            scene.host_writes(Generation((97, END), (Text("a"),), 1, FinishReason.STOP), seal_id)
        ready = scene.ready(scene.ask())
        return lambda: scene.plan_of(ready, renderer, contexts, LONG)

    few, many = calls(turn(3)), calls(turn(40))
    assert many > 2 * few if renderer is NAIVE else many == few


def test_what_was_gathered_does_not_change_with_the_conversation():
    scene = Scene()
    request = scene.ask()
    ready = scene.ready(request)
    gathered = gather(scene.held, ready, Contexts(0))
    before = plan(gathered, profile=PROFILE, renderer=RENDERER)
    scene.host_writes(before.seal, request)
    scene.add(Cancel(), [scene.held.log.entries[request]])
    assert plan(gathered, profile=PROFILE, renderer=RENDERER) == before


def test_a_later_message_leaves_the_turn_of_a_request_as_it_is():
    scene = Scene()
    request = scene.ask()
    before = standing(scene.held, request)
    scene.add(said("and"), [scene.held.log.entries[request]])
    assert standing(scene.held, request) == before is not None


def test_a_cancel_ends_the_turn_of_a_request():
    scene = Scene()
    request = scene.ask()
    assert standing(scene.held, request) is not None
    scene.add(Cancel(), [scene.held.log.entries[request]])
    assert standing(scene.held, request) is None


def test_a_change_of_membership_changes_the_turn_of_a_request():
    # A seal names the heads it was judged by, and a revocation may take messages out of it.
    scene = Scene()
    request = scene.ask()
    before = standing(scene.held, request)
    scene.add(Member(Grant(Writer(3).public, Role.WRITER)), [scene.genesis])
    assert standing(scene.held, request) != before


def test_a_seal_of_another_host_changes_the_turn_of_a_request():
    scene = Scene()
    other = Author(Writer(4).key, 5)
    scene.add(Member(Grant(other.public, Role.HOST)), [scene.genesis])
    first = scene.ask()
    before = standing(scene.held, first)
    rival = scene.add(Request(other.public, Sampling()), [scene.genesis])
    seal = scene.plan_of(scene.ready(rival.id)).seal
    scene.host_writes(seal, rival.id, other)
    assert standing(scene.held, first) != before


def test_answers_stay_usable_under_a_template_that_rewrites_history():
    scene = Scene()
    for contexts in (Contexts(), Contexts(0)):
        for text in ("hi", "more", "and more"):
            request = scene.ask(text)
            planned = scene.plan(request, REWRITING, contexts)
            seal_id = scene.host_writes(planned.seal, request)
            contexts.keep(seal_id, planned.context)
            answer = Generation((97, 98), (Text("ab"),), 2, FinishReason.STOP)
            scene.host_writes(answer, seal_id)


def test_a_plan_has_the_grammar_of_the_request_and_the_tools_in_effect():
    scene = Scene()
    assert scene.plan(scene.ask()).grammar is None
    tools = scene.add(Tools((ToolDefinition("f", "", "{}"),)), [scene.genesis])
    request = scene.add(Request(scene.host.public, Sampling()), [tools])
    assert '"f' in scene.plan_of(scene.ready(request.id), profile=LONG).grammar.text


def test_a_choice_of_tools_that_are_not_there_refuses_the_request():
    scene = Scene()
    with pytest.raises(ToolChoiceInvalid):
        scene.plan(scene.ask(tool_choice=ToolChoice.REQUIRED))


def test_more_entries_than_a_seal_lists_refuse_the_request():
    scene = Scene()
    request = scene.ask()
    many = replace(scene.ready(request), entries=(request,) * (SEAL_ENTRIES_MAX + 1))
    with pytest.raises(SealTooLarge, match="8193 entries"):
        scene.plan_of(many)


def test_a_seal_beyond_the_size_of_a_body_refuses_the_request():
    scene = Scene()
    dropped = Opaque("example.org", need=Need.DROPPABLE, data=b"x")
    last = scene.genesis
    for _ in range(3):
        last = scene.add(Said(Speaker.USER, (dropped,) * 256), [last])
    request = scene.add(Request(scene.host.public, Sampling()), [last]).id
    ready = scene.ready(request)
    fits = scene.plan_of(ready)
    assert len(fits.seal.projections) == 768
    # As many entries as take 15,360 projections would fill the model's context first.
    many = replace(ready, entries=(*ready.entries[:-1] * 20, request))
    long = replace(PROFILE, context_tokens_max=10_000)
    with pytest.raises(SealTooLarge, match="bytes"):
        scene.plan_of(many, profile=long)
    fewer = replace(ready, entries=(*ready.entries[:-1] * 6, request))
    with pytest.raises(SealTooLarge, match="4608 parts are not rendered as they are"):
        scene.plan_of(fewer, profile=long)


CALLED = Generation((97, END), (ToolCall("c1", "f", "{}"),), 0, FinishReason.TOOL_CALLS)


def test_open_tool_calls_refuse_the_request_by_name():
    scene = Scene()
    scene.answer(scene.ask(), CALLED)
    with pytest.raises(ObligationsOpen, match="c1"):
        scene.plan(scene.ask("more"))


def test_a_tool_result_closes_its_call():
    scene = Scene()
    answer = scene.answer(scene.ask(), CALLED)
    result = Said(Speaker.TOOL, (ToolResult("c1", (Text("42"),)),))
    closed = scene.add_behind(result, answer)
    request = scene.add_behind(Request(scene.host.public, Sampling()), closed.id)
    assert b"42" in bytes(i for i in scene.plan(request.id).prompt if i < 256)


def test_the_executor_that_a_request_names_closes_the_calls_of_its_answer():
    for executor, refuses in ((Writer(1).public, False), (Writer(9).public, True)):
        scene = Scene()
        answer = scene.answer(scene.ask(executor=executor), CALLED)
        closed = scene.add_behind(Said(Speaker.TOOL, (ToolResult("c1", ()),)), answer)
        request = scene.add_behind(Request(scene.host.public, Sampling()), closed.id)
        if refuses:
            with pytest.raises(ObligationsOpen):
                scene.plan(request.id)
        else:
            assert scene.plan(request.id).seal.projections == ()


def test_an_owner_by_the_membership_that_the_seal_names_may_abandon_a_call():
    scene = Scene()
    answer = scene.answer(scene.ask(executor=Writer(9).public), CALLED)
    abandoned = Said(Speaker.TOOL, (ToolResult("c1", (), is_error=True),))
    closed = scene.add_behind(abandoned, answer)
    request = scene.add_behind(Request(scene.host.public, Sampling()), closed.id)
    assert scene.plan(request.id).prompt


def test_a_context_that_leaves_no_token_for_an_answer_is_refused():
    scene = Scene()
    with pytest.raises(ContextTooLong):
        scene.plan(scene.ask("x" * 300))


def test_a_profile_this_host_does_not_offer_is_refused():
    scene = Scene()
    with pytest.raises(ProfileUnknown):
        scene.plan(scene.ask(profile=Digest(b"p" * 32)))
    assert scene.plan(scene.ask(profile=PROFILE.digest)).prompt


def test_a_missing_body_refuses_and_names_the_entry():
    scene = Scene()
    request = scene.ask()
    ready = scene.ready(request)
    entry = scene.held.log.entries[ready.entries[0]]
    scene.held.log.entries[entry.id] = type(entry)(
        entry.header_bytes, entry.signature, None, entry.id, entry.header
    )
    scene.held.log._bodies.forget(entry.id)
    with pytest.raises(BodyUnavailable) as refusal:
        scene.plan_of(ready)
    assert refusal.value.missing == (entry.id,)
