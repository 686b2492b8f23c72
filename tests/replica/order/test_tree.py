"""Order: what seals mean, against a naive twin and under any order of arrival (spec/03-order)."""

import random

import pytest

from antiphon.conformance.naive_order import naive_order
from replica.conversation.conversation import Conversation
from replica.ids import EntryId
from replica.log.body import Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.order.tail import tail
from replica.order.tree import Order, branch_ends
from replica.order.verdict import VoidReason
from tests.replica.order.turn import Turn
from tests.support.branches import Scene
from tests.support.stories import Story, answer, seal_of
from tests.support.writers import Writer

SEEDS = range(30)
STEPS = 70


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    told = [Story(seed) for seed in SEEDS]
    for story in told:
        story.grow(STEPS)
    return told


def _verdicts(held: Conversation) -> dict[str, object]:
    order = held.order
    return {
        "digest": held.log.digest,
        "nodes": {
            node.id: (node.parent.id if node.parent else None, node.generation)
            for node in order.nodes.values()
        },
        "void": order.void,
        "tips": [n.id for n in order.tips()],
        "seal_of": order.seal_of,
        "refusals": order.refusal_of,
        "cancelled": [r for r in sorted(order.requests) if order.is_cancelled(r)],
        "requests": sorted(order.requests),
        "tails": {n.id: [e.id for e in tail(order, n)] for n in order.tips()},
        "contexts": {n: [e.id for e in order.context(n)] for n in order.nodes},
    }


def _replayed(story: Story, entries: list[Entry]) -> Conversation:
    held = Conversation(story.held.id)
    for entry in entries:
        held.admit(entry, verified=True)
    return held


def test_the_order_is_the_naive_one(stories: list[Story]) -> None:
    for story in stories:
        order, naive = story.held.order, naive_order(story.held.log)
        chains = {n.id: [p.id for p in n.chain()] for n in order.nodes.values()}
        assert chains == naive.chains
        assert set(order.void) == naive.void
        requests = {r for r in order.requests if order.generation_of(r) is not None}
        assert {r: order.generation_of(r) for r in requests} == naive.answers


def test_every_verdict_is_independent_of_the_order_of_arrival(stories: list[Story]) -> None:
    for seed, story in enumerate(stories):
        expected = _verdicts(story.held)
        for turn in range(3):
            shuffled = list(story.entries)
            random.Random(seed * 10 + turn).shuffle(shuffled)
            held = _replayed(story, shuffled)
            assert not held.log.pending
            assert _verdicts(held) == expected


def test_folding_from_scratch_and_restoring_give_the_same(stories: list[Story]) -> None:
    for story in stories:
        log = story.held.log
        assert Order(log).void == story.held.order.void
        restored = Conversation.restore(story.held.id, log.entries.values())
        assert _verdicts(restored) == _verdicts(story.held)


def test_holders_of_the_covered_entries_agree_with_holders_of_more(stories: list[Story]) -> None:
    dropped = 0
    for story in stories:
        log = story.held.log
        covered = [e for e in story.entries if e.id in log.covered()]
        dropped += len(story.entries) - len(covered)
        held = _replayed(story, covered)
        assert not held.log.pending
        assert held.log.membership.kept.keys() == log.membership.kept.keys()
        assert _verdicts(held) == _verdicts(story.held)
    assert dropped > len(SEEDS), "the stories cut enough off"


def test_nothing_behind_a_seal_is_reordered_as_the_log_grows() -> None:
    for seed in SEEDS[:10]:
        story = Story(seed)
        for _ in range(STEPS):
            before = {n: story.held.order.context(n) for n in story.held.order.nodes}
            story.grow(1)
            order = story.held.order
            for seal, context in before.items():
                if seal in order.nodes:
                    assert order.context(seal) == context


def test_no_context_holds_an_entry_twice(stories: list[Story]) -> None:
    for story in stories:
        for node in story.held.order.nodes:
            ids = [e.id for e in story.held.order.context(node)]
            assert len(ids) == len(set(ids))


def test_a_request_has_one_seal_at_most(stories: list[Story]) -> None:
    for story in stories:
        requests = [n.seal.request for n in story.held.order.nodes.values()]
        assert len(requests) == len(set(requests))


def test_the_stories_show_most_ways_to_be_void(stories: list[Story]) -> None:
    seen = {reason for story in stories for reason in story.held.order.void.values()}
    assert len(seen) >= 7
    assert seen <= set(VoidReason)


# --- single rules ------------------------------------------------------------


def test_the_genesis_is_no_twin_of_a_lane_in_its_epoch() -> None:
    # Both stand at seq 0 of one author and epoch, on different tracks.
    turn = Turn()
    assert [e.id for e in turn.held.order.context(turn.seal.id)] == [
        turn.hello.id,
        turn.ask.id,
    ]


def test_a_body_that_comes_later_changes_no_verdict() -> None:
    turn = Turn()
    bare = Conversation(turn.held.id)
    for entry in turn.held.log.entries.values():
        withheld = entry.header.kind in (Kind.MESSAGE, Kind.GENERATION)
        bare.admit(
            Entry(entry.header_bytes, entry.signature, None, entry.id, entry.header)
            if withheld
            else entry
        )
    assert bare.order.nodes.keys() == turn.held.order.nodes.keys()
    for entry in turn.held.log.entries.values():
        bare.admit(entry)
    assert bare.order.nodes.keys() == turn.held.order.nodes.keys()
    assert bare.order.answer(turn.ask.id) == turn.held.order.answer(turn.ask.id)


def test_a_branch_end_is_reached_by_the_earliest_child() -> None:
    turn = Turn()
    left = turn.request(turn.answer, basis=turn.seal)
    right = turn.request(turn.answer, basis=turn.seal)
    seal_left = turn.sealed(left, [turn.answer, left], turn.seal)
    seal_right = turn.sealed(right, [turn.answer, right], turn.seal)
    order = turn.held.order
    end = order.branch_end(order.nodes[turn.seal.id])
    assert end is not None
    assert end.id == min(seal_left, seal_right, key=lambda e: e.order_key).id
    assert [n.id for n in order.nodes[seal_left.id].chain()] == [turn.seal.id, seal_left.id]
    assert not order.nodes[seal_left.id].covers(right.id)


def test_a_late_earlier_seal_among_others_of_one_batch_is_folded_once() -> None:
    # The seal that displaces another arrives in one batch with what follows it.
    turn = Turn()
    again = Writer(2, epoch=2)
    body = seal_of(turn.held, turn.ask.id, (turn.hello.id, turn.ask.id), None)
    listed = [turn.hello, turn.held.log.entries[body.membership_heads[0]]]
    twin = again.write(turn.held.id, body, parents=[turn.ask], listed=listed)
    first, second = sorted([twin, turn.seal], key=lambda e: e.order_key)
    held = Conversation(turn.held.id)
    for entry in turn.held.log.entries.values():
        if entry.id not in (turn.seal.id, turn.answer.id):
            held.admit(entry)
    held.admit(second)
    held.log.admit(first)
    held.log.admit(turn.answer)
    held.order.receive([e for e in (first, turn.answer) if e.id != second.id])
    assert list(held.order.nodes) == [first.id]
    assert held.order.void == {second.id: VoidReason.SEALED_BEFORE}


def test_a_seal_drops_out_once_a_cut_leaves_it_uncovered() -> None:
    turn = Turn()
    [grant] = turn.held.log.membership_heads()
    change = Member(Revocation(turn.hal.public))
    parents = [turn.held.log.entries[grant]]
    turn.admit(turn.ada.write(turn.held.id, change, parents=parents))
    assert not turn.held.order.nodes
    assert not turn.held.order.tips()
    assert turn.held.order.generation_of(turn.ask.id) is None


@pytest.mark.parametrize("from_scratch", [True, False])
def test_a_request_counts_once_a_grant_covers_it(from_scratch: bool) -> None:
    turn, bob, eve = Turn(), Writer(3), Writer(4)
    turn.grant(bob, Role.READER, turn.genesis)
    void = Member(Grant(eve.public, Role.WRITER))
    turn.admit(bob.write(turn.held.id, void, parents=[turn.genesis]))
    body = Request(turn.hal.public, Sampling())
    asked = turn.admit(eve.write(turn.held.id, body, parents=[turn.hello]))
    order = Order(turn.held.log) if from_scratch else turn.held.order
    assert asked.id not in order.requests
    grant = turn.grant(eve, Role.WRITER, turn.genesis)
    if from_scratch:
        order.receive([grant])
    assert asked.id in order.requests


@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_refusals_the_first_in_order_counts_whatever_that_of_arrival(
    backwards: bool,
) -> None:
    turn = Turn()
    asked = turn.request(turn.hello)
    refusals = [Writer(2, epoch=n).write(turn.held.id, answer(), parents=[asked]) for n in (5, 6)]
    for entry in refusals[:: -1 if backwards else 1]:
        turn.admit(entry)
    first = min(refusals, key=lambda e: e.order_key)
    assert turn.held.order.refusal_of == {asked.id: first.id}
    assert turn.held.order.answer(asked.id) == turn.held.log.body(first.id)


def test_a_request_without_an_answer_has_none_and_with_one_its_generation() -> None:
    turn = Turn()
    asked = turn.request(turn.hello)
    assert turn.held.order.answer(asked.id) is None
    found = turn.held.order.answer(turn.ask.id)
    assert found is not None
    assert found == turn.held.log.body(turn.answer.id)


def test_only_the_id_of_a_request_has_a_requests_body() -> None:
    turn = Turn()
    order = turn.held.order
    assert order.request(turn.ask.id) == turn.held.log.body(turn.ask.id)
    assert order.request(turn.hello.id) is None
    assert order.request(EntryId(bytes(32))) is None


def test_a_branch_ends_where_nothing_goes_on_but_forks_beside_the_answer() -> None:
    scene = Scene()
    first = scene.ask()
    seal = scene.seal(first)
    beside = scene.ask(first, basis=seal, fork=True)
    answer = scene.answer(seal)
    side = scene.seal(beside)
    order = scene.held.order
    assert [node.id for node in order.tips()] == [side.id]
    assert {node.id for node in branch_ends(order)} == {seal.id, side.id}
    _, further, _ = scene.turn(answer, basis=seal)
    assert [node.id for node in branch_ends(order)] == [side.id, further.id]
    end = order.branch_end(order.nodes[seal.id])
    assert end is order.nodes[further.id]
