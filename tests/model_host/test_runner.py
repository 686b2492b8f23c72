"""The plan of a generation, without a model: the runner is pure."""

from dataclasses import replace

import pytest

from model_host.profile import Profile
from model_host.refusals import (
    BodyUnavailable,
    ContextTooLong,
    ObligationsOpen,
    ProfileUnknown,
    SealTooLarge,
    TokensForeign,
)
from model_host.render import RECIPE_DIGEST, Template
from model_host.runner import Plan, plan
from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import sealable
from replica.ids import ConversationId, Digest, EntryId, short
from replica.limits import SEAL_ENTRIES_MAX
from replica.log.body import (
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
    ToolResult,
)
from replica.log.body import Message as Said
from replica.order.tail import frontier
from tests.model_host.test_render import ENCODER, END, TEMPLATE
from tests.support.writers import Writer, said

PROFILE = Profile(
    "bytes", Digest(b"w" * 32), ENCODER.digest, TEMPLATE.digest, RECIPE_DIGEST,
    Digest(b"s" * 32), "fp32", 200, has_tools=False,
)  # fmt: skip
ANY = Digest(bytes(32))


class Scene:
    """A conversation with an owner and a host."""

    def __init__(self) -> None:
        self.owner, host = Writer(1), Writer(2)
        self.host = Author(host.key, 5)
        self.genesis = self.owner.genesis()
        self.held = Conversation(ConversationId(self.genesis.id))
        self.held.admit(self.genesis)
        self.add(Member(Grant(self.host.public, Role.HOST)), [self.genesis])

    def add(self, body, parents, basis=None):
        entry = self.owner.write(self.held.id, body, parents=parents, basis=basis)
        self.held.admit(entry)
        return entry

    def ask(self, text="hi", **request) -> EntryId:
        tips = self.held.order.tips()
        basis = self.held.log.entries[tips[-1].id] if tips else None
        parents = frontier(self.held.order, tips[-1] if tips else None)
        message = self.add(said(text), [self.held.log.entries[p] for p in parents], basis)
        body = Request(self.host.public, request.pop("sampling", Sampling()), **request)
        return self.add(body, [message], basis).id

    def plan(self, request: EntryId) -> Plan:
        ready = sealable(self.held, request)
        assert ready is not None
        return plan(self.held, ready, profile=PROFILE, template=TEMPLATE, encoder=ENCODER)

    def host_writes(self, body, parent: EntryId) -> EntryId:
        entry = self.host.write(
            self.held, body, parents=(parent,), salt=bytes(16), time_ms=1,
            basis=parent if isinstance(body, Generation) else body.prev_seal,
        )  # fmt: skip
        self.held.admit(entry)
        return entry.id


def a_plan() -> Plan:
    scene = Scene()
    return scene.plan(scene.ask())


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
    seal_id = scene.host_writes(scene.plan(first).seal, first)
    answer = Generation((ord("y"), END), (Text("y"),), 1, FinishReason.STOP)
    scene.host_writes(answer, seal_id)
    second = scene.plan(scene.ask("more"))
    assert len(second.seal.tokens_per_entry) == len(second.seal.entries) == 3
    assert second.seal.tokens_per_entry[0] == 2
    assert second.prompt[: len(scene.plan(first).prompt)] == scene.plan(first).prompt


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
    ready = sealable(scene.held, first)
    other = Template("{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}")
    planned = plan(scene.held, ready, profile=PROFILE, template=other, encoder=ENCODER)
    seal_id = scene.host_writes(planned.seal, first)
    # Each of its ids is in this vocabulary too.
    answer = Generation((97, 98), (Text("ab"),), 2, FinishReason.STOP)
    answer_id = scene.host_writes(answer, seal_id)
    second = scene.ask("more")
    with pytest.raises(TokensForeign, match=short(answer_id)):
        scene.plan(second)
    ready = sealable(scene.held, second)
    assert plan(scene.held, ready, profile=PROFILE, template=other, encoder=ENCODER).prompt


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


def test_answers_stay_usable_under_a_template_that_rewrites_history():
    scene = Scene()
    rewriting = Template(
        "{% for m in messages %}{{ (messages|length|string) + m['content'] }}{% endfor %}"
    )

    def planned(request: EntryId) -> Plan:
        ready = sealable(scene.held, request)
        return plan(scene.held, ready, profile=PROFILE, template=rewriting, encoder=ENCODER)

    first = scene.ask()
    seal_id = scene.host_writes(planned(first).seal, first)
    scene.host_writes(Generation((97, 98), (Text("ab"),), 2, FinishReason.STOP), seal_id)
    assert planned(scene.ask("more")).prompt


def test_more_entries_than_a_seal_lists_refuse_the_request():
    scene = Scene()
    request = scene.ask()
    ready = sealable(scene.held, request)
    many = replace(ready, entries=(request,) * (SEAL_ENTRIES_MAX + 1))
    with pytest.raises(SealTooLarge, match="8193 entries"):
        plan(scene.held, many, profile=PROFILE, template=TEMPLATE, encoder=ENCODER)


def test_a_seal_beyond_the_size_of_a_body_refuses_the_request():
    scene = Scene()
    dropped = Opaque("example.org", need=Need.DROPPABLE, data=b"x")
    last = scene.genesis
    for _ in range(3):
        last = scene.add(Said(Speaker.USER, (dropped,) * 256), [last])
    request = scene.add(Request(scene.host.public, Sampling()), [last]).id
    ready = sealable(scene.held, request)
    fits = plan(scene.held, ready, profile=PROFILE, template=TEMPLATE, encoder=ENCODER)
    assert len(fits.seal.projections) == 768
    # As many entries as take 15,360 projections would fill the model's context first.
    many = replace(ready, entries=(*ready.entries[:-1] * 20, request))
    long = replace(PROFILE, context_tokens_max=10_000)
    with pytest.raises(SealTooLarge, match="bytes"):
        plan(scene.held, many, profile=long, template=TEMPLATE, encoder=ENCODER)


def test_open_tool_calls_refuse_the_request_by_name():
    scene = Scene()
    called = Said(Speaker.ASSISTANT, (ToolCall("c1", "f", "{}"),))
    call = scene.add(called, [scene.genesis])
    request = scene.add(Request(scene.host.public, Sampling()), [call])
    with pytest.raises(ObligationsOpen, match="c1"):
        scene.plan(request.id)


def test_a_tool_result_closes_its_call():
    scene = Scene()
    call = scene.add(Said(Speaker.ASSISTANT, (ToolCall("c1", "f", "{}"),)), [scene.genesis])
    closed = scene.add(Said(Speaker.TOOL, (ToolResult("c1", (), is_error=True),)), [call])
    request = scene.add(Request(scene.host.public, Sampling()), [closed])
    with pytest.raises(Exception) as refusal:
        scene.plan(request.id)
    assert not isinstance(refusal.value, ObligationsOpen)


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
    ready = sealable(scene.held, request)
    entry = scene.held.log.entries[ready.entries[0]]
    scene.held.log.entries[entry.id] = type(entry)(
        entry.header_bytes, entry.signature, None, entry.id, entry.header
    )
    scene.held.log._bodies.clear()
    with pytest.raises(BodyUnavailable) as refusal:
        plan(scene.held, ready, profile=PROFILE, template=TEMPLATE, encoder=ENCODER)
    assert refusal.value.missing == (entry.id,)
