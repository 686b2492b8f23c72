"""One generation's life, without a model: the runner is pure."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.profile import Profile
from model_host.refusals import BodyUnavailable, ContextTooLong, ObligationsOpen, ProfileUnknown
from model_host.render import RECIPE_DIGEST
from model_host.runner import JournalHead, Plan, Run, encode_journal_token, plan
from replica.author import Author
from replica.body import (
    FinishReason,
    Generation,
    Grant,
    Member,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from replica.body import Message as Said
from replica.conversation import Conversation
from replica.drafts import DraftStream, extend_digest, start_digest
from replica.ids import ConversationId, Digest, EntryId
from replica.sealing import sealable
from tests.host.test_render import ENCODER, END, TEMPLATE
from tests.support.writers import Writer, said

PROFILE = Profile(
    "bytes", Digest(b"w" * 32), ENCODER.digest, TEMPLATE.digest, RECIPE_DIGEST,
    Digest(b"s" * 32), "fp32", 200, has_tools=False,
)  # fmt: skip
ANY = Digest(bytes(32))


class Bytes:
    """Visible text of the byte tokenizer, with one stop string."""

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

    def finish(self) -> bytes:
        data, self.held = self.held, b""
        return data


class World:
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
        parents = self.held.order.frontier(tips[-1] if tips else None)
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
    world = World()
    return world.plan(world.ask())


def script(ids: Sequence[int]):
    """Return a sampler that reads from `ids` by output index."""
    return lambda _logits, _context, index: ids[index]


def new_run(planned: Plan, ids: Sequence[int], stop: bytes = b"") -> Run:
    return Run(planned, EntryId(b"s" * 32), 9, script(ids), Bytes(stop), frozenset({END}), 200)


def run_out(run: Run) -> Run:
    while run.finished is None:
        run.take(run.choose(np.zeros(2, np.float32)))
    return run


def test_a_plan_seals_what_the_rule_of_coverage_yields():
    world = World()
    request = world.ask()
    planned = world.plan(request)
    seal_id = world.host_writes(planned.seal, request)
    assert seal_id in world.held.order.nodes
    assert sum(planned.seal.tokens_per_entry) == len(planned.prompt)


def test_a_second_seal_counts_the_tokens_of_its_own_entries_only():
    world = World()
    first = world.ask()
    seal_id = world.host_writes(world.plan(first).seal, first)
    answer = Generation((ord("y"), END), (Text("y"),), 1, FinishReason.STOP)
    world.host_writes(answer, seal_id)
    second = world.plan(world.ask("more"))
    assert len(second.seal.tokens_per_entry) == len(second.seal.entries) == 3
    assert second.seal.tokens_per_entry[0] == 2
    assert second.prompt[: len(world.plan(first).prompt)] == world.plan(first).prompt


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


def test_what_was_held_back_is_shown_when_no_stop_string_came():
    run = run_out(new_run(a_plan(), [*b"yes#", END], b"##"))
    assert bytes(run.visible) == b"yes#"


def test_the_request_limits_the_output():
    world = World()
    run = run_out(new_run(world.plan(world.ask(output_tokens_max=2)), list(b"abcdef")))
    assert run.finished[0] is FinishReason.LENGTH
    assert run.token_ids == list(b"ab")


def test_a_full_context_ends_the_run():
    world = World()
    planned = world.plan(world.ask())
    run = run_out(new_run(planned, list(b"x" * 300)))
    assert run.finished[0] is FinishReason.CONTEXT_LIMIT
    assert len(planned.prompt) + len(run.token_ids) == 200


def test_a_cancelled_run_keeps_what_was_shown():
    run = new_run(a_plan(), list(b"abc"))
    run.take(ord("a"))
    run.end(FinishReason.CANCELLED, "cancelled by a member")
    body = run.generation(Usage(prompt_tokens=3), profile=PROFILE, numerics_class=ANY)
    assert (body.token_ids, body.visible_bytes) == ((97,), 1)
    assert body.finish_reason == FinishReason.CANCELLED
    assert body.usage.output_tokens == 1


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
    world = World()
    planned = world.plan(world.ask())
    whole = run_out(new_run(planned, [*b"hello", END]))
    resumed = new_run(planned, [*b"hello", END])
    for token in whole.token_ids[:3]:
        resumed.take(token)
    run_out(resumed)
    assert resumed.drafts == whole.drafts
    assert resumed.generation(Usage(), profile=PROFILE, numerics_class=ANY) == whole.generation(
        Usage(), profile=PROFILE, numerics_class=ANY
    )


def test_a_continuation_draws_on_where_the_answer_ended():
    world = World()
    first = world.ask()
    seal_id = world.host_writes(world.plan(first).seal, first)
    cut = Generation((97, 98), (Text("ab"),), 2, FinishReason.LENGTH)
    answer = world.host_writes(cut, seal_id)
    seal = world.held.log.entries[seal_id]
    body = Request(world.host.public, Sampling())
    request = world.add(body, [world.held.log.entries[answer]], seal)
    planned = world.plan(request.id)
    assert planned.draw_offset == 2
    assert planned.prompt[-2:] == (97, 98)


def test_open_tool_calls_refuse_the_request_by_name():
    world = World()
    called = Said(Speaker.ASSISTANT, (ToolCall("c1", "f", "{}"),))
    call = world.add(called, [world.genesis])
    request = world.add(Request(world.host.public, Sampling()), [call])
    with pytest.raises(ObligationsOpen, match="c1"):
        world.plan(request.id)


def test_a_tool_result_closes_its_call():
    world = World()
    call = world.add(Said(Speaker.ASSISTANT, (ToolCall("c1", "f", "{}"),)), [world.genesis])
    closed = world.add(Said(Speaker.TOOL, (ToolResult("c1", (), is_error=True),)), [call])
    request = world.add(Request(world.host.public, Sampling()), [closed])
    with pytest.raises(Exception) as refusal:
        world.plan(request.id)
    assert not isinstance(refusal.value, ObligationsOpen)


def test_a_context_without_room_for_an_answer_is_refused():
    world = World()
    with pytest.raises(ContextTooLong):
        world.plan(world.ask("x" * 300))


def test_a_profile_this_host_does_not_offer_is_refused():
    world = World()
    with pytest.raises(ProfileUnknown):
        world.plan(world.ask(profile=Digest(b"p" * 32)))
    assert world.plan(world.ask(profile=PROFILE.digest)).prompt


def test_a_journal_survives_a_torn_last_token():
    head = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, PROFILE.digest, ANY)
    data = head.encode() + encode_journal_token(5) + encode_journal_token(70_000)
    assert JournalHead.decode(data) == (head, [5, 70_000])
    assert JournalHead.decode(data[:-1]) == (head, [5])
    assert JournalHead.decode(head.encode()[:-1]) is None
    assert JournalHead.decode(b"") is None


def test_a_missing_body_refuses_and_names_the_entry():
    world = World()
    request = world.ask()
    ready = sealable(world.held, request)
    entry = world.held.log.entries[ready.entries[0]]
    world.held.log.entries[entry.id] = type(entry)(
        entry.header_bytes, entry.signature, None, entry.id, entry.header
    )
    world.held.log._bodies.clear()
    with pytest.raises(BodyUnavailable) as refusal:
        plan(world.held, ready, profile=PROFILE, template=TEMPLATE, encoder=ENCODER)
    assert refusal.value.missing == (entry.id,)


def test_the_profile_digest_covers_every_field():
    from dataclasses import replace

    others = {replace(PROFILE, name="x"), replace(PROFILE, dtype="bf16")}
    others.add(replace(PROFILE, context_tokens_max=201))
    assert len({p.digest for p in (*others, PROFILE)}) == 4
