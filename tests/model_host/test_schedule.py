"""The turns on a host: each rule, and the order between conversations."""

from collections.abc import Iterable

import pytest

from model_host.schedule import Begin, Decision, GatherHeads, Refuse, Resume, Schedule
from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import sealable
from replica.ids import ConversationId, EntryId, PublicKey
from replica.limits import MEMBERSHIP_HEADS_MAX
from replica.log.body import (
    Body,
    Cancel,
    FinishReason,
    Generation,
    Grant,
    Join,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
)
from replica.log.entry import Conflict, Entry
from replica.order.tail import frontier
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said

HOST = Writer(2)
NOW_MS = 1_000_000
FORK = Conflict.FORK


class Scene:
    """A conversation of one owner, in which HOST is granted HOST."""

    def __init__(self, number: int = 1, role: Role | None = Role.HOST) -> None:
        self.number = number
        self.owner = Writer(b"owner %d" % number)
        self.author = Author(HOST.key, 5)
        self.genesis = self.owner.genesis()
        self.held = Conversation(ConversationId(self.genesis.id))
        self.held.admit(self.genesis)
        if role is not None:
            self.grant(HOST.public, role)

    @property
    def id(self) -> ConversationId:
        return self.held.id

    def grant(self, key: PublicKey, role: Role) -> None:
        self.write(Member(Grant(key, role)), [self.genesis])

    def crowd(self) -> None:
        """Grant so many keys at once that one seal can't name all grants."""
        for number in range(MEMBERSHIP_HEADS_MAX + 6):
            owner = Writer(b"owner %d" % self.number, epoch=number + 2)
            grant = Member(Grant(PublicKey(bytes([number]) * 32), Role.READER))
            self.held.admit(owner.write(self.id, grant, parents=[self.genesis]))

    def write(
        self,
        body: Body,
        parents: list[Entry],
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
    ) -> Entry:
        at = self.held.log.entries[basis] if basis else None
        entry = self.owner.write(self.id, body, parents=parents, basis=at, conflict=conflict)
        self.held.admit(entry)
        return entry

    def ask(self, **fields: object) -> EntryId:
        """Write a message at the end of the newest branch, and a request behind it."""
        tips = self.held.order.tips()
        tip = tips[-1] if tips else None
        parents = [self.held.log.entries[i] for i in frontier(self.held.order, tip)]
        return self.ask_behind(parents, tip.id if tip else None, **fields)

    def ask_behind(
        self,
        parents: list[Entry],
        basis: EntryId | None,
        conflict: Conflict = Conflict.QUEUE,
        host: PublicKey = HOST.public,
        **fields: object,
    ) -> EntryId:
        message = self.write(said("hi"), parents, basis)
        body = Request(host, Sampling(), **fields)  # type: ignore[arg-type]
        return self.write(body, [message], basis, conflict).id

    def branch(self) -> EntryId:
        """Write a request that forks from the first entry."""
        return self.ask_behind([self.genesis], None, FORK)

    def cancel(self, request: EntryId) -> Entry:
        return self.write(Cancel(), [self.held.log.entries[request]])

    def seal(self, request: EntryId) -> EntryId:
        ready = sealable(self.held, request)
        assert ready is not None
        prev = ready.parent.id if ready.parent is not None else None
        body = seal_of(self.held, request, ready.entries, prev)
        seal = self.host_writes(body, (request,), prev)
        assert seal in self.held.order.nodes
        return seal

    def reply(self, seal: EntryId, body: Generation | None = None) -> EntryId:
        return self.host_writes(body or answer(), (seal,), seal)

    def host_writes(
        self, body: Body, parents: tuple[EntryId, ...], basis: EntryId | None = None
    ) -> EntryId:
        entry = self.author.write(
            self.held, body, parents=parents, basis=basis, salt=bytes(16), time_ms=1
        )
        self.held.admit(entry)
        return entry.id


def schedule(running_max: int = 9) -> Schedule:
    return Schedule(HOST.public, running_max=running_max)


def start_next(asked: Schedule, *scenes: Scene, now_ms: int = NOW_MS) -> Decision | None:
    return asked.start_next([s.held for s in scenes], is_synchronized=lambda _: True, now_ms=now_ms)


def begun(asked: Schedule, *scenes: Scene) -> EntryId | None:
    """Return the request that begins next, None if there is none."""
    decision = start_next(asked, *scenes)
    assert decision is None or isinstance(decision, Begin)
    return decision.request if decision is not None else None


# --- which requests -------------------------------------------------------------------


def test_a_request_that_names_the_host_begins_with_the_list_of_its_seal() -> None:
    scene = Scene()
    request = scene.ask()
    decision = start_next(schedule(), scene)
    assert decision == Begin(scene.id, sealable(scene.held, request))  # type: ignore[arg-type]
    assert decision.request == request


def test_a_request_that_names_another_host_is_left_to_it() -> None:
    scene = Scene()
    scene.ask_behind([scene.genesis], None, host=Writer(3).public)
    assert start_next(schedule(), scene) is None


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
    assert start_next(asked, scene) is None
    assert asked.waiting([scene.held]) == 0
    scene.grant(HOST.public, Role.HOST)
    assert isinstance(start_next(asked, scene), Begin)


def test_a_host_that_was_revoked_continues_nothing() -> None:
    scene = Scene()
    scene.seal(scene.ask())
    scene.branch()
    scene.write(Member(Revocation(HOST.public, ())), [scene.genesis])
    assert start_next(schedule(), scene) is None


def test_a_request_that_is_answered_or_refused_does_not_come_again() -> None:
    scene, asked = Scene(), schedule()
    request = scene.ask()
    scene.reply(scene.seal(request))
    refused = scene.ask()
    scene.host_writes(Generation((), (), 0, FinishReason.REFUSED), (refused,))
    assert start_next(asked, scene) is None
    assert begun(asked, scene) is None


def test_a_request_waits_while_its_branch_has_no_answer() -> None:
    scene, asked = Scene(), schedule()
    first = scene.ask()
    seal = scene.seal(first)
    later = scene.ask()
    assert start_next(asked, scene) == Resume(scene.id, first)
    asked.end(first)
    scene.reply(seal)
    assert begun(asked, scene) == later


# --- decisions --------------------------------------------------------------------------


def test_a_sealed_request_is_resumed_despite_later_entries_about_it() -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=1)
    scene.seal(request)
    scene.cancel(request)
    assert start_next(schedule(), scene) == Resume(scene.id, request)


def test_a_request_cancelled_before_its_turn_is_refused_as_cancelled() -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=1)
    scene.cancel(request)
    refusal = start_next(schedule(), scene)
    assert refusal == Refuse(scene.id, request, FinishReason.CANCELLED, "cancelled before it began")
    assert refusal.body.finish_reason == FinishReason.CANCELLED
    scene.host_writes(refusal.body, (request,))
    assert scene.held.order.generation_of(request) is not None


@pytest.mark.parametrize(
    ("answer_by_ms", "is_late"),
    [(0, False), (1, True), (NOW_MS - 1, True), (NOW_MS, False), (NOW_MS + 1, False)],
)
def test_a_request_is_refused_once_its_time_has_passed(answer_by_ms: int, is_late: bool) -> None:
    scene = Scene()
    request = scene.ask(answer_by_ms=answer_by_ms)
    decision = start_next(schedule(), scene)
    assert isinstance(decision, Refuse) == is_late
    if isinstance(decision, Refuse):
        assert (decision.request, decision.finish) == (request, FinishReason.REFUSED)
        late_s = round((NOW_MS - answer_by_ms) / 1000)
        expected = f"REQUEST_EXPIRED: its turn came {late_s} s after the time set for it"
        assert decision.body.finish_detail.startswith(expected)
        assert decision.body.visible_bytes == 0


def test_a_request_that_waits_is_judged_when_its_turn_comes() -> None:
    scene, asked = Scene(), schedule()
    seal = scene.seal(scene.ask())
    late = scene.ask(answer_by_ms=NOW_MS + 1)
    first = start_next(asked, scene)
    assert isinstance(first, Resume)
    assert start_next(asked, scene, now_ms=NOW_MS + 2) is None
    scene.reply(seal)
    asked.end(first.request)
    decision = start_next(asked, scene, now_ms=NOW_MS + 2)
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
    assert start_next(asked, crowded, other) == GatherHeads(crowded.id, request, heads)
    asked.end(request)
    crowded.host_writes(Join(), heads)
    assert begun(asked, crowded, other) == request


def test_a_late_or_cancelled_request_is_refused_without_gathering_heads() -> None:
    scene = Scene()
    scene.crowd()
    scene.ask(answer_by_ms=1)
    assert isinstance(start_next(schedule(), scene), Refuse)


# --- how many at once -------------------------------------------------------------------


def test_no_more_run_at_once_than_allowed() -> None:
    scenes, asked = [Scene(n) for n in range(4)], schedule(running_max=2)
    for scene in scenes:
        scene.ask()
    first, second = begun(asked, *scenes), begun(asked, *scenes)
    assert first is not None
    assert second is not None
    assert start_next(asked, *scenes) is None
    assert (asked.running, asked.waiting(s.held for s in scenes)) == (2, 2)
    asked.end(first)
    assert (asked.running, asked.waiting(s.held for s in scenes)) == (1, 3)
    assert begun(asked, *scenes) not in (None, first, second)


def test_a_conversation_waits_until_a_request_that_began_there_is_sealed() -> None:
    scene, other, asked = Scene(1), Scene(2), schedule()
    first, second = scene.ask(), scene.branch()
    assert begun(asked, scene) == first
    # Its seal is not in the log yet: another request might belong behind it.
    assert start_next(asked, scene) is None
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
    assert start_next(asked, scene) == Resume(scene.id, first)
    assert start_next(asked, scene) == Resume(scene.id, second)
    assert start_next(asked, scene) is None


def closed_and_asked_again(scene: Scene) -> tuple[EntryId, EntryId]:
    """Close a sealed request, and write one behind the CANCEL; return both requests."""
    first = scene.ask()
    seal = scene.seal(first)
    cancel = scene.cancel(first)
    return first, scene.ask_behind([cancel], seal)


def test_a_request_behind_a_closed_one_waits_for_the_run_that_was_closed() -> None:
    scene, asked = Scene(), schedule()
    first, second = closed_and_asked_again(scene)
    assert start_next(asked, scene) == Resume(scene.id, first)
    assert start_next(asked, scene) is None
    asked.end(first)
    asked.give_up(first)
    assert begun(asked, scene) == second


def test_two_sealed_requests_of_one_branch_are_resumed_one_after_the_other() -> None:
    scene, asked = Scene(), schedule()
    first, second = closed_and_asked_again(scene)
    scene.seal(second)
    assert start_next(asked, scene) == Resume(scene.id, first)
    assert start_next(asked, scene) is None
    scene.reply(scene.held.order.seal_of[first])
    assert start_next(asked, scene) is None
    asked.end(first)
    assert start_next(asked, scene) == Resume(scene.id, second)


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


def test_a_decision_that_was_not_carried_out_comes_again() -> None:
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
    """Answer `count` requests in a row; return their conversations."""
    by_id = {scene.id: scene for scene in scenes}
    served = []
    for _ in range(count):
        decision = start_next(asked, *by_id.values())
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
        decision = start_next(schedule(), *given)
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
        decision = start_next(asked, first, second)
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
