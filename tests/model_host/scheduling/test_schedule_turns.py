"""Whose turn it is on a host: how many run at once, and the order between conversations."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from model_host.scheduling import schedule as scheduling
from model_host.scheduling.schedule import Begin, Refuse, RefuseExcess, Resume, Schedule
from replica.ids import ConversationId, EntryId
from tests.model_host.scheduling.scheduled import FORK, NOW_MS, Scene, begun, schedule, take
from tests.support.writers import said

# --- how many at once -------------------------------------------------------------------


def test_no_more_run_at_once_than_allowed() -> None:
    scenes, asked = [Scene(n) for n in range(4)], schedule(running_max=2)
    for scene in scenes:
        scene.ask()
    first, second = begun(asked, *scenes), begun(asked, *scenes)
    assert first is not None
    assert second is not None
    assert take(asked, *scenes) is None
    assert (asked.running, asked.waiting(s.held for s in scenes)) == (2, 2)
    asked.end(first)
    assert (asked.running, asked.waiting(s.held for s in scenes)) == (1, 3)
    assert begun(asked, *scenes) not in (None, first, second)


def test_a_conversation_waits_until_what_has_begun_there_is_sealed() -> None:
    scene, other, asked = Scene(1), Scene(2), schedule()
    first, second = scene.ask(), scene.branch()
    assert begun(asked, scene) == first
    # Its seal is not in the log yet: the branch another one goes to might end there.
    assert take(asked, scene) is None
    elsewhere = other.ask()
    assert begun(asked, scene, other) == elsewhere
    scene.seal(first)
    assert begun(asked, scene) == second


def test_two_branches_of_a_conversation_run_at_once() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask()
    scene.seal(first)
    second = scene.branch()
    scene.seal(second)
    assert take(asked, scene) == Resume(scene.id, first)
    assert take(asked, scene) == Resume(scene.id, second)
    assert take(asked, scene) is None


def closed_and_asked_again(scene: Scene) -> tuple[EntryId, EntryId]:
    """Close a sealed request, and ask behind that; return both requests."""
    first = scene.ask()
    seal = scene.seal(first)
    cancel = scene.cancel(first)
    return first, scene.ask_behind([cancel], seal)


def test_a_request_behind_a_closed_one_waits_for_the_run_that_was_closed() -> None:
    scene, asked = Scene(), schedule()
    first, second = closed_and_asked_again(scene)
    assert take(asked, scene) == Resume(scene.id, first)
    assert take(asked, scene) is None
    asked.end(first)
    asked.give_up(first)
    assert begun(asked, scene) == second


def test_two_sealed_requests_of_one_branch_are_resumed_one_after_the_other() -> None:
    scene, asked = Scene(), schedule()
    first, second = closed_and_asked_again(scene)
    scene.seal(second)
    assert take(asked, scene) == Resume(scene.id, first)
    assert take(asked, scene) is None
    scene.reply(scene.held.order.seal_of[first])
    assert take(asked, scene) is None
    asked.end(first)
    assert take(asked, scene) == Resume(scene.id, second)


def test_a_request_that_can_not_be_closed_keeps_no_other_waiting() -> None:
    scene, other, asked = Scene(1), Scene(2), schedule(running_max=1)
    hopeless, beside = scene.ask(), scene.branch()
    assert begun(asked, scene) == hopeless
    asked.give_up(hopeless)
    assert begun(asked, scene) == beside
    asked.give_up(beside)
    elsewhere = other.ask()
    assert begun(asked, scene, other) == elsewhere
    asked.end(elsewhere)
    assert asked.waiting([scene.held, other.held]) == 3


def test_what_could_not_be_acted_on_comes_again() -> None:
    scene, asked = Scene(), schedule(running_max=1)
    request = scene.ask()
    for _ in range(3):
        assert begun(asked, scene) == request
        asked.end(request)


def test_a_request_being_answered_waits_no_more_even_while_its_answer_is_in_the_log() -> None:
    scene, asked = Scene(), schedule(running_max=1)
    request = scene.ask()
    assert asked.waiting([scene.held]) == 1
    assert begun(asked, scene) == request
    assert asked.waiting([scene.held]) == 0
    scene.reply(scene.seal(request))
    assert (asked.running, asked.waiting([scene.held])) == (1, 0)


# --- fairness ----------------------------------------------------------------------------


def turns(asked: Schedule, scenes: Iterable[Scene], count: int) -> list[ConversationId]:
    """Answer `count` requests in a row; return whose they were."""
    by_id = {scene.id: scene for scene in scenes}
    served = []
    for _ in range(count):
        decision = take(asked, *by_id.values())
        assert isinstance(decision, Begin)
        scene = by_id[decision.conversation]
        scene.reply(scene.seal(decision.request))
        asked.end(decision.request)
        served.append(scene.id)
    return served


def test_conversations_take_turns_however_many_requests_each_has() -> None:
    busy, quiet = sorted((Scene(1), Scene(2)), key=lambda s: s.id)
    for _ in range(4):
        busy.branch()
    quiet.ask()
    assert turns(schedule(), [busy, quiet], 5) == [busy.id, quiet.id, busy.id, busy.id, busy.id]


def test_who_was_served_longest_ago_comes_first() -> None:
    scenes = sorted((Scene(n) for n in range(3)), key=lambda s: s.id)
    asked = schedule()
    for _ in range(2):
        for scene in scenes:
            scene.branch()
    # Served in an order of their own first, so that ids don't decide.
    order = [scenes[2], scenes[0], scenes[1]]
    for scene in order:
        turns(asked, [scene], 1)
    assert turns(asked, scenes, 3) == [scene.id for scene in order]


def test_between_conversations_never_served_the_least_id_comes_first() -> None:
    scenes = [Scene(n) for n in range(4)]
    for scene in scenes:
        scene.ask()
    wanted = min(scene.id for scene in scenes)
    for given in (scenes, scenes[::-1]):
        decision = take(schedule(), *given)
        assert decision is not None
        assert decision.conversation == wanted


def test_a_resumption_and_a_refusal_are_turns_too() -> None:
    first, second = sorted((Scene(1), Scene(2)), key=lambda s: s.id)
    sealed = first.ask()
    first.seal(sealed)
    first.ask_behind([first.genesis], None, FORK, answer_by_ms=1)
    second.branch()
    second.branch()
    asked, order = schedule(running_max=1), []
    for _ in range(3):
        decision = take(asked, first, second)
        assert decision is not None
        order.append((type(decision), decision.conversation))
        if isinstance(decision, Begin):
            second.reply(second.seal(decision.request))
        elif isinstance(decision, Resume):
            first.reply(first.held.order.seal_of[sealed])
        asked.end(decision.request)
    assert order == [(Resume, first.id), (Begin, second.id), (Refuse, first.id)]


def test_within_a_conversation_the_earliest_request_comes_first() -> None:
    scene = Scene()
    requests = [scene.branch() for _ in range(5)]
    entries = scene.held.log.entries
    requests.sort(key=lambda i: entries[i].order_key)
    assert turns(schedule(), [scene], 1) == [scene.id]
    answered = [i for i in requests if scene.held.order.generation_of(i) is not None]
    assert answered == requests[:1]


# --- owners ---------------------------------------------------------------------------


def test_an_owner_with_fewer_running_requests_comes_first() -> None:
    many = [Scene(number, of=1) for number in range(4)]
    other, asked = Scene(9), schedule()
    for scene in many:
        scene.ask()
    assert begun(asked, *many, other) is not None
    request = other.ask()
    assert begun(asked, *many, other) == request


def test_owners_take_turns_whatever_the_number_of_their_conversations() -> None:
    many = [Scene(number, of=1) for number in range(4)]
    other, asked = Scene(9), schedule(running_max=1)
    served = []
    for scene in (*many, other):
        scene.ask()
    while (request := begun(asked, *many, other)) is not None:
        scene = next(s for s in (*many, other) if request in s.held.order.requests)
        served.append(scene.number)
        scene.reply(scene.seal(request))
        asked.end(request)
    assert sorted(served) == [1, 1, 1, 1, 9]
    assert 9 in served[:2]


def test_one_owner_can_not_use_up_what_runs_at_once() -> None:
    many = [Scene(number, of=1) for number in range(6)]
    other, asked = Scene(9), schedule(running_max=5, per_owner=3)
    for scene in many:
        scene.ask()
    assert [begun(asked, *many, other) is not None for _ in range(4)] == [True] * 3 + [False]
    assert begun(asked, *many, other) is None
    request = other.ask()
    assert begun(asked, *many, other) == request


def test_the_newest_request_beyond_the_bound_of_its_owner_is_refused() -> None:
    scenes = [Scene(number, of=1) for number in range(4)]
    other, asked = Scene(9), schedule(running_max=1, waiting=2)
    other.ask()
    running = scenes[3].ask()
    assert {begun(asked, *scenes) for _ in range(1)} == {running}
    for scene in scenes[:2]:
        scene.ask()
    assert take(asked, *scenes, other) is None  # two wait, and one runs
    newest = scenes[2].ask()
    decision = take(asked, *scenes, other)
    assert isinstance(decision, Refuse)
    assert (decision.conversation, decision.request) == (scenes[2].id, newest)
    assert decision.detail.startswith("HOST_BUSY: 3 requests of this owner wait, 2 at most.")
    assert take(asked, *scenes, other) is None  # the refusal is under way


def test_a_cancelled_request_does_not_count_as_waiting() -> None:
    scene, asked = Scene(), schedule(waiting=2)
    scene.seal(scene.ask())
    cancelled = [scene.branch() for _ in range(3)]
    for request in cancelled:
        scene.cancel(request)
    scene.branch()
    scene.branch()
    decisions = [take(asked, scene) for _ in range(6)]
    assert not any(isinstance(one, RefuseExcess) for one in decisions)
    refused = [one.request for one in decisions if isinstance(one, Refuse)]
    assert set(refused) <= set(cancelled)


def test_many_requests_beyond_the_bound_are_found_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, other, asked = Scene(1), Scene(9), schedule(waiting=2)
    requests, passes = [scene.branch() for _ in range(40)], []
    found = scheduling.open_requests
    monkeypatch.setattr(scheduling, "open_requests", lambda *at: passes.append(at) or found(*at))
    newest = [take(asked, scene, other) for _ in range(38)]
    assert [one.request for one in newest if isinstance(one, RefuseExcess)] == requests[:1:-1]
    assert len(passes) == 1
    # None of them is a turn of its conversation, or waits: what is left goes on beside them.
    assert asked.waiting([scene.held]) == 2
    assert begun(asked, scene, other) == requests[0]
    elsewhere = other.ask()
    assert begun(asked, scene, other) == elsewhere


def test_a_request_that_was_answered_meanwhile_is_not_refused() -> None:
    scene, asked = Scene(), schedule(running_max=0, waiting=1)
    _, second, third = (scene.branch() for _ in range(3))
    decision = take(asked, scene)
    assert isinstance(decision, RefuseExcess)
    assert decision.request == third
    scene.host_writes(decision.body, (second,))
    assert take(asked, scene) is None
    asked.end(third)  # it could not be refused, as on a full disk
    assert take(asked, scene) == replace(decision, detail=decision.detail.replace("3 ", "2 "))


def test_the_requests_of_other_owners_do_not_count_for_the_bound() -> None:
    scenes, asked = [Scene(number) for number in range(4)], schedule(running_max=0, waiting=1)
    for scene in scenes:
        scene.ask()
    assert take(asked, *scenes) is None


def test_a_sealed_request_is_not_refused_whatever_waits() -> None:
    scene, asked = Scene(), schedule(running_max=0, waiting=0)
    scene.seal(scene.ask())
    assert take(asked, scene) is None


# --- requests that wait for results of tools ----------------------------------------------


def test_a_request_that_waits_for_results_comes_again_once_the_log_has_grown() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask()
    assert begun(asked, scene) == first
    asked.wait(first, len(scene.held.log))
    assert take(asked, scene) is None
    scene.write(said("a result"), [scene.held.log.entries[first]])
    assert begun(asked, scene) == first


def test_a_request_that_waits_for_results_does_not_come_again_at_once() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask()
    assert begun(asked, scene) == first
    assert take(asked, scene) is None  # while it is tried
    asked.wait(first, len(scene.held.log))
    assert take(asked, scene) is None
    assert take(asked, scene) is None


def test_a_request_that_waits_for_results_lets_others_begin() -> None:
    scene, asked = Scene(), schedule()
    first, second = scene.ask(), scene.branch()
    assert begun(asked, scene) == first
    asked.wait(first, len(scene.held.log))
    assert begun(asked, scene) == second


def test_a_request_that_waits_for_results_is_refused_when_its_time_is_over() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask(answer_by_ms=NOW_MS)
    assert begun(asked, scene) == first
    asked.wait(first, len(scene.held.log))
    late = take(asked, scene, now_ms=NOW_MS + 1)
    assert isinstance(late, Refuse)
    assert late.request == first


def test_a_request_that_waits_for_results_is_due_right_behind_its_time() -> None:
    scene, asked = Scene(), schedule()
    scene.ask(answer_by_ms=NOW_MS + 5)
    first = begun(asked, scene)
    assert first is not None
    assert asked.next_expiry_ms(NOW_MS) is None
    asked.wait(first, len(scene.held.log), NOW_MS + 5)
    assert asked.next_expiry_ms(NOW_MS) == NOW_MS + 6
    assert take(asked, scene, now_ms=NOW_MS + 5) is None
    assert isinstance(take(asked, scene, now_ms=NOW_MS + 6), Refuse)
    # What is over already waits for something else, and wakes nobody.
    asked.wait(first, len(scene.held.log), NOW_MS + 5)
    assert asked.next_expiry_ms(NOW_MS + 6) is None


# --- what is remembered -------------------------------------------------------------------


def test_what_is_remembered_of_turns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "LAST_TURNS_MAX", 4)
    monkeypatch.setattr(scheduling, "GIVEN_UP_MAX", 2)
    asked = schedule()
    scenes = [Scene(n) for n in range(4)]
    for scene in scenes:
        scene.ask()
        request = begun(asked, scene)
        assert request is not None
        asked.give_up(request)
    assert (len(asked._last_turn), len(asked._given_up)) == (4, 2)
    assert [take(asked, scene) is not None for scene in scenes] == [True, True, False, False]


def test_a_request_that_waits_for_results_is_forgotten_once_it_is_gone() -> None:
    scene, asked = Scene(), schedule()
    scene.ask()
    first = begun(asked, scene)
    assert first is not None
    asked.wait(first, len(scene.held.log))
    assert take(asked, scene) is None
    assert list(asked._tried_on) == [first]
    take(asked)  # the conversation was closed
    assert not asked._tried_on
