"""Whose turn it is on a host: which requests, and what is done with each."""

import pytest

from model_host.scheduling.schedule import Begin, Decision, GatherHeads, Refuse, Resume
from replica.conversation.next_seal import sealable
from replica.ids import ConversationId, EntryId
from replica.log.body import (
    FinishReason,
    Generation,
    Join,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
)
from replica.log.entry import Entry
from tests.model_host.scheduling.scheduled import FORK, HOST, NOW_MS, Scene, begun, schedule, take
from tests.support.stories import answer
from tests.support.writers import Writer, said

REQUEST = Request(HOST.public, Sampling())

# --- which requests -------------------------------------------------------------------


def test_a_request_that_names_the_host_begins_with_what_its_seal_lists() -> None:
    scene = Scene()
    request = scene.ask()
    decision = take(schedule(), scene)
    assert decision == Begin(scene.id, sealable(scene.held, request))  # type: ignore[arg-type]
    assert decision.request == request


def test_a_request_that_names_another_host_is_left_to_it() -> None:
    scene = Scene()
    scene.ask_behind([scene.genesis], None, host=Writer(3).public)
    assert take(schedule(), scene) is None


def test_before_its_own_lanes_are_synced_a_host_begins_and_resumes_nothing() -> None:
    new, sealed = Scene(1), Scene(2)
    new.ask()
    sealed.seal(sealed.ask())
    synchronized: set[ConversationId] = set()
    asked = schedule()

    def now() -> Decision | None:
        held = [new.held, sealed.held]
        return asked.start_next(held, is_synchronized=synchronized.__contains__, now_ms=NOW_MS)

    assert now() is None
    synchronized.add(sealed.id)
    assert isinstance(now(), Resume)
    assert now() is None
    synchronized.add(new.id)
    assert isinstance(now(), Begin)


@pytest.mark.parametrize("role", [None, Role.READER, Role.WRITER])
def test_who_is_not_a_host_of_a_conversation_begins_nothing_there(role: Role | None) -> None:
    scene = Scene(role=role)
    scene.ask()
    asked = schedule()
    assert take(asked, scene) is None
    assert asked.waiting([scene.held]) == 0
    scene.grant(HOST.public, Role.HOST)
    assert isinstance(take(asked, scene), Begin)


def test_a_host_that_was_revoked_goes_on_with_nothing() -> None:
    scene = Scene()
    scene.seal(scene.ask())
    scene.branch()
    scene.write(Member(Revocation(HOST.public, ())), [scene.genesis])
    assert take(schedule(), scene) is None


def cut_answer(scene: Scene) -> tuple[list[Entry], EntryId]:
    """Return the place behind an answer that ended at its limit: parents and basis."""
    seal = scene.seal(scene.ask())
    cut = scene.reply(seal, answer("An ans", FinishReason.LENGTH))
    return [scene.held.log.entries[cut]], seal


def test_of_two_requests_for_the_rest_of_an_answer_the_second_is_refused() -> None:
    scene, asked = Scene(), schedule()
    at = cut_answer(scene)
    one, other = (scene.write(REQUEST, *at).id for _ in range(2))
    decision = take(asked, scene)
    assert isinstance(decision, Begin)
    assert decision.request in (one, other)
    seal = scene.seal(decision.request)
    asked.end(decision.request)
    scene.reply(seal, answer("wer", FinishReason.LENGTH))
    refusal = take(asked, scene)
    assert isinstance(refusal, Refuse)
    assert refusal.request == ({one, other} - {decision.request}).pop()
    assert refusal.detail.startswith("NOTHING_TO_CONTINUE: ")
    scene.host_writes(refusal.body, (refusal.request,))
    asked.end(refusal.request)
    beside = scene.write(REQUEST, *at, FORK)
    assert begun(asked, scene) == beside.id


def test_who_answers_a_message_behind_a_cut_answer_asks_for_no_rest() -> None:
    scene, asked = Scene(), schedule()
    (cut,), seal = cut_answer(scene)
    message = scene.write(said("Wait."), [cut], seal)
    rest = scene.write(REQUEST, [cut], seal).id  # the message is none of what it follows
    words = scene.write(REQUEST, [cut, message], seal).id
    begins = take(asked, scene)
    assert isinstance(begins, Begin)
    assert begins.request in (rest, words)
    scene.reply(scene.seal(begins.request))
    asked.end(begins.request)
    behind = take(asked, scene)
    assert isinstance(behind, Begin if begins.request == rest else Refuse)


def test_a_request_that_is_answered_or_refused_does_not_come_again() -> None:
    scene, asked = Scene(), schedule()
    request = scene.ask()
    scene.reply(scene.seal(request))
    refused = scene.ask()
    scene.host_writes(Generation((), (), 0, FinishReason.REFUSED), (refused,))
    assert take(asked, scene) is None
    assert begun(asked, scene) is None


def test_a_request_waits_while_its_branch_has_no_answer() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask()
    seal = scene.seal(first)
    later = scene.ask()
    assert take(asked, scene) == Resume(scene.id, first)
    asked.end(first)
    scene.reply(seal)
    assert begun(asked, scene) == later


# --- what is done with it ---------------------------------------------------------------


def test_a_sealed_request_is_resumed_whatever_is_said_of_it_since() -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=1)
    scene.seal(request)
    scene.cancel(request)
    assert take(schedule(), scene) == Resume(scene.id, request)


def test_a_request_cancelled_before_its_turn_is_refused_as_cancelled() -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=1)
    scene.cancel(request)
    refusal = take(schedule(), scene)
    assert refusal == Refuse(scene.id, request, FinishReason.CANCELLED, "cancelled before it began")
    assert refusal.body.finish_reason == FinishReason.CANCELLED
    scene.host_writes(refusal.body, (request,))
    assert scene.held.order.generation_of(request) is not None


def test_a_request_cancelled_while_it_waits_is_refused_at_once() -> None:
    scene, asked = Scene(), schedule()
    scene.seal(scene.ask())
    waits = scene.ask()
    assert isinstance(take(asked, scene), Resume)
    assert take(asked, scene) is None
    scene.cancel(waits)
    refusal = take(asked, scene)
    assert refusal == Refuse(scene.id, waits, FinishReason.CANCELLED, "cancelled before it began")


@pytest.mark.parametrize(
    ("answer_by_ms", "is_late"),
    [(0, False), (1, True), (NOW_MS - 1, True), (NOW_MS, False), (NOW_MS + 1, False)],
)
def test_a_request_is_refused_once_its_time_has_passed(answer_by_ms: int, is_late: bool) -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=answer_by_ms)
    decision = take(schedule(), scene)
    assert isinstance(decision, Refuse) == is_late
    if isinstance(decision, Refuse):
        assert (decision.request, decision.finish) == (request, FinishReason.REFUSED)
        late_s = round((NOW_MS - answer_by_ms) / 1000)
        expected = f"REQUEST_EXPIRED: it could begin {late_s} s after the time set for it"
        assert decision.body.finish_detail.startswith(expected)
        assert decision.body.visible_bytes == 0


def test_a_request_that_waits_is_judged_when_its_turn_comes() -> None:
    scene, asked = Scene(), schedule()
    seal = scene.seal(scene.ask())
    late = scene.ask(answer_by_ms=NOW_MS + 1)
    first = take(asked, scene)
    assert isinstance(first, Resume)
    assert take(asked, scene, now_ms=NOW_MS + 2) is None
    scene.reply(seal)
    asked.end(first.request)
    decision = take(asked, scene, now_ms=NOW_MS + 2)
    assert isinstance(decision, Refuse)
    assert decision.request == late


def test_surplus_membership_heads_are_gathered_first_which_is_no_turn() -> None:
    crowded, other = sorted((Scene(1), Scene(2)), key=lambda s: s.id)
    asked = schedule(running_max=1)
    crowded.crowd()
    request = crowded.ask()
    other.ask()
    heads = crowded.held.log.roster.heads_to_join()
    assert len(heads) > 1
    assert take(asked, crowded, other) == GatherHeads(crowded.id, request, heads)
    asked.end(request)
    crowded.host_writes(Join(), heads)
    assert begun(asked, crowded, other) == request


def test_what_is_late_or_cancelled_is_refused_without_gathering_heads() -> None:
    scene = Scene()
    scene.crowd()
    scene.ask(answer_by_ms=1)
    assert isinstance(take(schedule(), scene), Refuse)
