"""The context at a place is a prefix of the one that a request there has."""

import pytest

from model_host.generation.planning import gather_branch, render_branch
from model_host.generation.prospect import gather_at, gather_current
from model_host.rendering import Contexts
from replica.conversation.chosen import place_at
from replica.conversation.conversation import Conversation
from replica.conversation.place import Place
from replica.ids import EntryId, Track
from replica.log.body import (
    Cancel,
    Checkpoint,
    DocumentUpdate,
    FinishReason,
    Generation,
    Grant,
    Join,
    Member,
    Message,
    Request,
    Role,
    Sampling,
    Text,
    ToolDefinition,
    Tools,
)
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from replica.order.coverage import coverage
from replica.order.tail import frontier
from replica.refusals import ArgumentInvalid
from tests.convergence.unruly import UNKNOWN_KIND, Unruly
from tests.model_host.planned import ANY, Scene
from tests.model_host.rendering.test_render import END, RENDERER
from tests.support.stories import Story, seal_of
from tests.support.writers import Writer, said

ANSWER = Generation((97, END), (Text("a"),), 1, FinishReason.STOP)


def ids_at(scene: Scene, entry_id: EntryId) -> tuple[int, ...]:
    branch = gather_at(scene.held, entry_id, Contexts(0))
    return render_branch(branch, RENDERER).context.ids


def test_the_context_behind_a_message_is_a_prefix_of_its_requests() -> None:
    scene = Scene()
    request = scene.ask("hello")
    (message,) = scene.held.log.entries[request].header.parents
    planned = scene.plan(request)
    before = ids_at(scene, message)
    assert before
    assert planned.prompt[: len(before)] == before
    assert len(before) < len(planned.prompt)


def test_the_context_of_a_seal_is_the_one_it_states() -> None:
    scene = Scene()
    request = scene.ask("hello")
    prompt = scene.plan(request).prompt
    scene.answer(request, ANSWER)
    assert ids_at(scene, scene.held.order.seal_of[request]) == prompt


def test_the_context_behind_an_answer_has_the_answer() -> None:
    scene = Scene()
    first = scene.ask("hello")
    prompt = scene.plan(first).prompt
    answered = scene.answer(first, ANSWER)
    before = ids_at(scene, answered)
    assert before[: len(prompt)] == prompt
    assert before[len(prompt) :][:2] == ANSWER.token_ids
    later = scene.plan(scene.ask("more")).prompt
    assert later[: len(before)] == before


def test_an_entry_that_is_not_there_or_that_none_can_follow_is_refused() -> None:
    scene = Scene()
    granted = next(i for i in scene.held.log.entries if i != scene.genesis.id)
    for entry_id in (EntryId(b"?" * 32), granted):
        with pytest.raises(ArgumentInvalid):
            gather_at(scene.held, entry_id, Contexts(0))
    assert ids_at(scene, EntryId(scene.genesis.id)) == ()


# --- entries that are no context ----------------------------------------------------------


def test_a_refusal_is_behind_a_place_and_in_no_context() -> None:
    scene = Scene()
    scene.answer(scene.ask("first"), ANSWER)
    refused = scene.ask("second")
    before = ids_at(scene, refused)
    refusal = scene.refuse(refused)
    assert ids_at(scene, refusal) == ids_at(scene, refused) == before
    assert kinds(scene) == [Message, Request, Generation, Message, Request]
    current = render_branch(gather_current(scene.held, scene.held.order.tips()[-1]), RENDERER)
    assert current.context.ids == before, "no header of an answer: none will come"
    again = scene.plan(scene.ask("third")).prompt
    assert again[: len(before)] == before


def test_a_refusal_as_the_first_turn_is_in_no_context() -> None:
    scene = Scene()
    refused = scene.ask("hello")
    refusal = scene.refuse(refused)
    assert kinds(scene) == [Message, Request]
    assert ids_at(scene, refusal) == ids_at(scene, refused)


def test_a_request_that_was_cancelled_before_its_seal_has_no_header() -> None:
    scene = Scene()
    asked = scene.ask("hello")
    waiting = render_branch(gather_current(scene.held, None), RENDERER).context.ids
    assert waiting == scene.plan(asked).prompt
    scene.add(Cancel(), [scene.held.log.entries[asked]])
    cancelled = render_branch(gather_current(scene.held, None), RENDERER).context.ids
    assert cancelled == waiting[: len(cancelled)] == ids_at(scene, asked)
    assert len(cancelled) < len(waiting)


def written_behind_all_kinds() -> tuple[Scene, dict[str, Entry]]:
    """Return a conversation with an entry of each kind, valid and void."""
    scene, found = Scene(), dict[str, Entry]()
    held, entries = scene.held, scene.held.log.entries
    found["genesis"] = scene.genesis
    found["member"] = next(e for e in entries.values() if e.header.kind == Kind.MEMBER)
    first = scene.ask("first")
    found["cancel"] = scene.add(Cancel(), [entries[first]])
    answered = scene.answer(first, ANSWER)
    seal = entries[held.order.seal_of[first]]
    found |= {"sealed request": entries[first], "seal": seal, "answer": entries[answered]}
    reader, other = Writer(8), Writer(2, epoch=9)
    scene.add(Member(Grant(reader.public, Role.READER)), [found["member"]])

    def write(author: Writer, body, parent: Entry, **more) -> Entry:
        entry = author.write(held.id, body, parents=[parent], **more)
        held.admit(entry)
        return entry

    void = seal_of(held, first, (first,), None, heads=(), digest=ANY)
    found["void seal"] = write(other, void, entries[first], listed=[entries[first]])
    found["answer to a void seal"] = write(other, ANSWER, found["void seal"])
    found["answer of another key"] = write(scene.owner, ANSWER, seal)
    found["second answer"] = write(other, ANSWER, seal)
    found["message"] = scene.add_behind(said("more"), answered)
    found["void message"] = write(reader, said("psst"), found["message"])
    offered = Tools((ToolDefinition("a", "", "{}"),))
    found["tools"] = scene.add_behind(offered, found["message"].id)
    found["join"] = write(scene.owner, Join(), found["tools"])
    found["join of members"] = write(scene.owner, Join(), found["member"], track=Track.MEMBERSHIP)
    found["document"] = scene.add(DocumentUpdate(b"\0\0"), [scene.genesis])
    found["checkpoint"] = write(other, Checkpoint(ANY, ANY, 1, ANY, 1), entries[answered])
    found["unknown"] = write(scene.owner, said("x"), found["join"], kind=UNKNOWN_KIND)
    asked = Request(scene.host.public, Sampling())
    found["request"] = scene.add_behind(asked, found["unknown"].id)
    found["void request"] = write(reader, asked, found["unknown"])
    found["refusal"] = entries[scene.refuse(found["request"].id)]
    found["behind a refusal"] = scene.add_behind(said("again"), found["refusal"].id)
    return scene, found


UNFOLLOWED = {"member", "join of members", "document", "void seal"}


def test_an_entry_of_any_kind_has_the_context_of_a_request_behind_it_or_none() -> None:
    scene, found = written_behind_all_kinds()
    assert {e.header.kind for e in found.values()} == {*Kind, UNKNOWN_KIND}
    refused = {name for name, entry in found.items() if not is_prefix_of_real(scene.held, entry)}
    assert refused == UNFOLLOWED
    for name in ("refusal", "void message", "cancel", "answer to a void seal"):
        items = items_at(scene.held, found[name])
        assert found[name].id not in items, name
    assert found["second answer"].id in items_at(scene.held, found["second answer"])


@pytest.mark.parametrize("seed", range(30))
def test_in_any_log_an_entry_has_the_context_of_a_request_behind_it(seed: int) -> None:
    story = Unruly(seed) if seed % 2 else Story(seed)
    story.grow(60)
    checked = [is_prefix_of_real(story.held, e) for e in [*story.held.log.entries.values()]]
    assert any(checked)


@pytest.mark.parametrize("seed", range(30))
def test_in_any_log_the_current_context_is_that_of_the_next_request(seed: int) -> None:
    story = Unruly(seed) if seed % 2 else Story(seed)
    story.grow(60)
    held = story.held
    for tip in held.order.tips() or [None]:
        current = gather_current(held, tip)
        ids = render_branch(current, RENDERER).context.ids
        if tip is not None and tip.generation is None:
            assert current == gather_branch(held, tip, Contexts(0))
        else:
            place = Place(frontier(held.order, tip), tip.id if tip is not None else None)
            assert real_ids(held, place)[: len(ids)] == ids


def items_at(held: Conversation, entry: Entry) -> list[EntryId]:
    """Return the entries of the context at an entry."""
    branch = gather_at(held, entry.id, Contexts(0))
    return [item.entry for listing in branch.listings for item in listing.items]


def is_prefix_of_real(held: Conversation, entry: Entry) -> bool:
    """Compare a context with that of a request behind an entry; False where none can follow."""
    try:
        found = gather_at(held, entry.id, Contexts(0))
    except ArgumentInvalid:
        with pytest.raises(ArgumentInvalid):
            place_at(held, entry.id)
        return False
    ids = render_branch(found, RENDERER).context.ids
    sealed = held.order.nodes.get(entry.id)
    if sealed is None:
        assert real_ids(held, place_at(held, entry.id))[: len(ids)] == ids
    return True


def real_ids(held: Conversation, place: Place) -> tuple[int, ...]:
    """Return the context of a request that is written at a place, as its seal would list it."""
    order, log, owner = held.order, held.log, Writer(1, epoch=len(held.log.entries) + 1000)
    parents = [log.entries[i] for i in place.parents]
    basis = log.entries[place.basis] if place.basis is not None else None
    body = Request(owner.public, Sampling())
    asked = owner.write(held.id, body, parents=parents, basis=basis, conflict=Conflict.FORK)
    held.admit(asked)
    parent, heads = order.nodes[basis.id] if basis is not None else None, log.membership_heads()
    answer = parent.generation if parent is not None else None
    listed = coverage(log, order.nodes, asked.id, parent, answer, log.roster.at(heads))
    branch = gather_branch(held, parent, Contexts(0), listed.entries, heads)
    return render_branch(branch, RENDERER).context.ids


# --- the current context ------------------------------------------------------------------


def kinds(scene: Scene) -> list[type]:
    """Return the kinds of the entries that the current context of the newest branch has."""
    tips = scene.held.order.tips()
    branch = gather_current(scene.held, tips[-1] if tips else None)
    return [type(item.body) for listing in branch.listings for item in listing.items]


def test_a_conversation_without_a_seal_has_what_is_written() -> None:
    scene = Scene()
    assert kinds(scene) == []
    scene.ask()
    assert kinds(scene) == [Message, Request]


def test_the_answer_and_what_follows_belong_to_the_context() -> None:
    scene = Scene()
    scene.answer(scene.ask("first"), ANSWER)
    assert kinds(scene) == [Message, Request, Generation]
    scene.ask("second")
    assert kinds(scene) == [Message, Request, Generation, Message, Request]


def test_the_next_seal_renders_what_the_current_context_has() -> None:
    scene = Scene()
    scene.answer(scene.ask("first"), ANSWER)
    request = scene.ask("second")
    rendered = render_branch(gather_current(scene.held, scene.held.order.tips()[-1]), RENDERER)
    assert rendered.context.ids == scene.plan(request).prompt
