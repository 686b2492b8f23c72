"""The next seal of a host (spec/03-order §4); cases are in spec/vectors/order.json."""

from replica.conversation.next_seal import open_requests, sealable
from replica.log.body import Cut, Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from tests.support.branches import Scene
from tests.support.stories import Story, seal_of
from tests.support.writers import Writer


def test_a_request_is_open_until_it_is_answered() -> None:
    scene = Scene()
    request = scene.ask()
    assert scene.open() == [request.id]
    assert open_requests(scene.held, scene.ada.public) == []
    seal = scene.seal(request)
    assert scene.open() == [request.id]
    scene.answer(seal)
    assert scene.open() == []


def test_a_refused_request_is_closed() -> None:
    scene = Scene()
    request = scene.ask()
    scene.refuse(request)
    assert scene.open() == []


def test_a_void_request_is_not_open() -> None:
    scene = Scene()
    bob = Writer(3)
    grant = scene.member(Grant(bob.public, Role.WRITER), scene.grant)
    body = Request(scene.hal.public, Sampling())
    request = scene.add(bob.write(scene.held.id, body, parents=[scene.hello]))
    assert scene.open() == [request.id]
    scene.member(Revocation(bob.public), grant)
    assert scene.open() == []


def test_a_sealed_request_stays_open_after_its_author_is_revoked() -> None:
    scene, bob = Scene(), Writer(3)
    grant = scene.member(Grant(bob.public, Role.WRITER), scene.grant)
    request = scene.ask(by=bob)
    scene.seal(request)
    scene.member(Revocation(bob.public), grant)
    assert not scene.held.log.membership.is_visible(request)
    assert scene.open() == [request.id]


def test_a_sealable_request_counts_once_sealed() -> None:
    counted = 0
    for seed in range(25):
        story = Story(seed)
        story.grow(50)
        held = story.held
        for host in story.hosts:
            for request in open_requests(held, host.public):
                found = sealable(held, request)
                if found is None or request in held.order.seal_of:
                    continue
                prev_seal = found.parent.id if found.parent else None
                body = seal_of(held, request, found.entries, prev_seal)
                named = [request, *body.entries, *body.membership_heads]
                named += [prev_seal] if prev_seal else []
                entry = host.write(
                    held.id, body, parents=story.at(request), listed=story.at(*named)
                )
                story.add(entry)
                assert entry.id in held.order.nodes
                counted += 1
    assert counted > 50


def test_a_request_waits_while_its_basis_is_being_answered() -> None:
    scene = Scene()
    first = scene.ask()
    seal = scene.seal(first)
    follow = scene.ask(first, basis=seal, fork=True)
    queued = scene.ask(first, basis=seal)
    assert sealable(scene.held, follow.id) is None
    assert sealable(scene.held, queued.id) is None
    generation = scene.answer(seal)
    over, after = sealable(scene.held, follow.id), sealable(scene.held, queued.id)
    assert over is not None
    assert after is not None
    assert over.entries == (follow.id,)
    assert after.entries == (generation.id, queued.id)


def test_a_queued_request_waits_for_the_end_of_its_branch() -> None:
    scene = Scene()
    seal = scene.seal(scene.ask())
    generation = scene.answer(seal)
    left = scene.ask(generation, basis=seal)
    queued = scene.ask(generation, basis=seal)
    left_seal = scene.seal(left)
    assert sealable(scene.held, queued.id) is None
    scene.answer(left_seal)
    found = sealable(scene.held, queued.id)
    assert found is not None
    assert found.parent is not None
    assert found.parent.id == left_seal.id


def test_a_request_queued_behind_a_fork_waits_for_its_seal_while_that_may_come() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    scene.turn(answer, basis=base)
    fork = scene.ask(answer, basis=base, fork=True)
    queued = scene.ask(fork, basis=base)
    assert sealable(scene.held, queued.id) is None
    found = sealable(scene.held, fork.id)
    assert found is not None
    assert found.entries == (answer.id, fork.id)
    seal = scene.seal(fork)
    assert sealable(scene.held, queued.id) is None
    told = scene.answer(seal)
    found = sealable(scene.held, queued.id)
    assert found is not None
    assert found.parent is scene.held.order.nodes[seal.id]
    assert found.entries == (told.id, queued.id)


def test_a_request_queued_behind_a_fork_of_another_host_does_not_wait() -> None:
    scene, ida = Scene(), Writer(4)
    scene.member(Grant(ida.public, Role.HOST), scene.grant)
    _, base, answer = scene.turn()
    scene.turn(answer, basis=base)
    fork = scene.ask(answer, basis=base, fork=True, host=ida)
    queued, same = scene.ask(fork, basis=base), scene.ask(fork, basis=base, host=ida)
    found = sealable(scene.held, queued.id)
    assert found is not None
    assert found.entries == (answer.id, fork.id, queued.id)
    assert sealable(scene.held, same.id) is None


def test_a_request_queued_behind_a_fork_that_is_over_begins_its_branch() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    scene.turn(answer, basis=base)
    refused, closed = (scene.ask(answer, basis=base, fork=True) for _ in range(2))
    queued = [scene.ask(fork, basis=base) for fork in (refused, closed)]
    scene.refuse(refused)
    scene.cancel(closed)
    for fork, request in zip((refused, closed), queued, strict=True):
        found = sealable(scene.held, request.id)
        assert found is not None
        assert found.parent is scene.held.order.nodes[base.id]
        assert found.entries == (answer.id, fork.id, request.id)


# --- lost hosts -------------------------------------------------------------------


class LostHost(Scene):
    """A request sealed by a host that never answers, and another host."""

    def __init__(self) -> None:
        """Write them."""
        super().__init__()
        self.ida = Writer(4)
        self.bob = Writer(5)
        grant = self.member(Grant(self.ida.public, Role.HOST), self.grant)
        self.last_grant = self.member(Grant(self.bob.public, Role.WRITER), grant)
        self.first = self.ask()
        self.unanswered = self.seal(self.first)

    def lists(self, request: Entry) -> list[bytes] | None:
        """Return the list of a seal of the request on the unanswered one; None while it waits."""
        found = sealable(self.held, request.id)
        if found is None:
            return None
        assert found.parent is not None
        assert found.parent.id == self.unanswered.id
        return list(found.entries)


def test_a_request_behind_a_lost_host_waits_unless_it_follows_a_cancel() -> None:
    scene = LostHost()
    for fork in (False, True):
        assert (
            scene.lists(scene.ask(scene.first, basis=scene.unanswered, host=scene.ida, fork=fork))
            is None
        )


def test_another_host_takes_over_from_a_lost_one_behind_a_cancel() -> None:
    scene = LostHost()
    cancel = scene.cancel(scene.first)
    for fork in (False, True):
        over = scene.ask(cancel, basis=scene.unanswered, host=scene.ida, fork=fork)
        assert scene.lists(over) == [over.id]


def test_a_host_that_is_back_answers_the_cancelled_request_first() -> None:
    scene = LostHost()
    over = scene.ask(scene.cancel(scene.first), basis=scene.unanswered)
    assert scene.open() == [scene.first.id, over.id]
    late = scene.answer(scene.unanswered)
    assert scene.lists(over) == [late.id, over.id]


def test_a_request_that_waited_behind_a_lost_host_continues_behind_the_next_one() -> None:
    scene = LostHost()
    waits = scene.ask(scene.first, basis=scene.unanswered, host=scene.ida)
    over = scene.ask(scene.cancel(scene.first), basis=scene.unanswered, host=scene.ida)
    generation = scene.answer(scene.seal(over, scene.ida), scene.ida)
    found = sealable(scene.held, waits.id)
    assert found is not None
    assert list(found.entries) == [generation.id, waits.id]


def test_another_host_takes_over_from_a_revoked_one() -> None:
    scene = LostHost()
    header = scene.unanswered.header
    cut = Cut(header.epoch, header.track, header.seq, scene.unanswered.id)
    scene.add(
        scene.ada.write(
            scene.held.id,
            Member(Revocation(scene.hal.public, (cut,))),
            parents=[scene.last_grant],
            listed=[scene.unanswered],
        )
    )
    over = scene.ask(scene.cancel(scene.first), basis=scene.unanswered, host=scene.ida)
    assert scene.lists(over) == [over.id]


def test_an_owner_closes_the_request_of_a_member_who_left() -> None:
    scene = LostHost()
    asked = scene.ask(scene.cancel(scene.first), basis=scene.unanswered, by=scene.bob)
    scene.unanswered = scene.seal(asked)
    scene.member(Revocation(scene.bob.public), scene.last_grant)
    over = scene.ask(scene.cancel(asked), basis=scene.unanswered, host=scene.ida)
    assert scene.lists(over) == [over.id]


def test_a_host_that_is_lost_before_it_seals_blocks_nobody() -> None:
    scene = Scene()
    scene.ask()
    ida = Writer(4)
    scene.member(Grant(ida.public, Role.HOST), scene.grant)
    beside = scene.ask(host=ida)
    found = sealable(scene.held, beside.id)
    assert found is not None
    assert found.parent is None


def test_a_queued_request_behind_a_void_answer_waits_unless_the_answered_one_is_closed() -> None:
    scene = LostHost()
    void = scene.answer(scene.unanswered)
    waits = scene.ask(void, basis=scene.unanswered, host=scene.ida)
    header = scene.unanswered.header
    cut = Cut(header.epoch, header.track, header.seq, scene.unanswered.id)
    revocation = Member(Revocation(scene.hal.public, (cut,)))
    parents, listed = [scene.last_grant], [scene.unanswered]
    scene.add(scene.ada.write(scene.held.id, revocation, parents=parents, listed=listed))
    assert scene.held.order.nodes[scene.unanswered.id].generation == void.id
    assert scene.lists(waits) is None
    cancel = scene.cancel(scene.first)
    over = scene.ask(void, cancel, basis=scene.unanswered, host=scene.ida)
    assert scene.lists(over) == [over.id]
