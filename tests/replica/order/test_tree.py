"""Order: verdicts on seals, against a naive twin and in any order of arrival (spec/03-order)."""

import random

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.place import place_on_branch
from replica.ids import EntryId
from replica.log.body import Cancel, Grant, Join, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.order.tail import frontier, tail
from replica.order.tree import Order
from replica.order.verdict import VoidReason
from tests.replica.order.naive_order import naive_order
from tests.support.stories import Story, answer, seal_of
from tests.support.writers import Writer, said

SEEDS = range(60)
STEPS = 70


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    histories = [Story(seed) for seed in SEEDS]
    for story in histories:
        story.grow(STEPS)
    return histories


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


class Scene:
    """An owner, a host, one sealed and answered request."""

    def __init__(self) -> None:
        """Write the first turn."""
        self.ada, self.hal = Writer(1), Writer(2)
        self.genesis = self.ada.genesis()
        self.held = Conversation(self.genesis.conversation)
        self.admit(self.genesis)
        self.grant(self.hal, Role.HOST, self.genesis)
        self.hello = self.say("hello", self.genesis)
        self.ask = self.request(self.hello)
        self.seal = self.sealed(self.ask, [self.hello, self.ask])
        self.answer = self.admit(
            self.hal.write(self.held.id, answer(), parents=[self.seal], basis=self.seal)
        )

    def admit(self, entry: Entry) -> Entry:
        """Admit an entry; return it."""
        self.held.admit(entry)
        return entry

    def grant(self, writer: Writer, role: Role, *parents: Entry) -> Entry:
        """Grant a role."""
        body = Member(Grant(writer.public, role))
        return self.admit(self.ada.write(self.held.id, body, parents=parents))

    def say(self, words: str, *parents: Entry) -> Entry:
        """Write a message."""
        return self.admit(self.ada.write(self.held.id, said(words), parents=parents))

    def request(self, *parents: Entry, basis: Entry | None = None) -> Entry:
        """Write a request."""
        body = Request(self.hal.public, Sampling())
        return self.admit(self.ada.write(self.held.id, body, parents=parents, basis=basis))

    def sealed(self, request: Entry, entries: list[Entry], prev: Entry | None = None) -> Entry:
        """Seal a request."""
        held = self.held
        ids = tuple(e.id for e in entries)
        body = seal_of(held, request.id, ids, prev.id if prev else None)
        listed = [*entries, *(held.log.entries[i] for i in body.membership_heads)]
        listed += [prev] if prev else []
        return self.admit(self.hal.write(held.id, body, parents=[request], listed=listed))


def test_the_genesis_is_no_twin_of_a_lane_in_its_epoch() -> None:
    # Both are at seq 0 of one author and epoch, on different tracks.
    scene = Scene()
    assert [e.id for e in scene.held.order.context(scene.seal.id)] == [
        scene.hello.id,
        scene.ask.id,
    ]


def test_a_body_that_comes_later_changes_no_verdict() -> None:
    scene = Scene()
    bare = Conversation(scene.held.id)
    for entry in scene.held.log.entries.values():
        withheld = entry.header.kind in (Kind.MESSAGE, Kind.GENERATION)
        bare.admit(
            Entry(entry.header_bytes, entry.signature, None, entry.id, entry.header)
            if withheld
            else entry
        )
    assert bare.order.nodes.keys() == scene.held.order.nodes.keys()
    for entry in scene.held.log.entries.values():
        bare.admit(entry)
    assert bare.order.nodes.keys() == scene.held.order.nodes.keys()
    assert bare.order.answer(scene.ask.id) == scene.held.order.answer(scene.ask.id)


def test_a_branch_end_is_reached_by_the_earliest_child() -> None:
    scene = Scene()
    left = scene.request(scene.answer, basis=scene.seal)
    right = scene.request(scene.answer, basis=scene.seal)
    seal_left = scene.sealed(left, [scene.answer, left], scene.seal)
    seal_right = scene.sealed(right, [scene.answer, right], scene.seal)
    order = scene.held.order
    end = order.branch_end(order.nodes[scene.seal.id])
    assert end is not None
    assert end.id == min(seal_left, seal_right, key=lambda e: e.order_key).id
    assert [n.id for n in order.nodes[seal_left.id].chain()] == [scene.seal.id, seal_left.id]
    assert not order.nodes[seal_left.id].covers(right.id)


def test_without_a_tip_the_frontier_is_the_genesis() -> None:
    ada = Writer(1)
    genesis = ada.genesis()
    held = Conversation(genesis.conversation)
    held.admit(genesis)
    assert frontier(held.order, None) == (genesis.id,)
    assert held.order.branch_end(None) is None


def test_a_reader_adds_nothing_to_the_parents_of_the_next_entry() -> None:
    scene, reader = Scene(), Writer(3)
    scene.grant(reader, Role.READER, scene.genesis)
    hello = scene.say("hello again", scene.answer)
    for number in range(70):
        spammer = Writer(3, epoch=number + 2)
        body, kind = (Join(), None) if number % 2 else (said("x"), 77)
        spam = spammer.write(scene.held.id, body, parents=[hello], kind=kind, track=1)
        scene.admit(spam)
        assert scene.held.log.membership.is_visible(spam)
    over = scene.say("on top of it", spam)
    tip = scene.held.order.nodes[scene.seal.id]
    assert tail(scene.held.order, tip) == [hello, over]
    assert frontier(scene.held.order, tip) == (over.id,), "it follows hello through the spam"
    open_request = scene.request(over, basis=scene.seal)
    scene.admit(reader.write(scene.held.id, Join(), parents=[open_request], track=1))
    assert place_on_branch(scene.held, open_request.id).parents == (open_request.id,)


def test_a_message_written_while_an_answer_comes_is_in_the_next_context() -> None:
    scene = Scene()
    wait = scene.say("wait", scene.ask)
    tip = scene.held.order.nodes[scene.seal.id]
    assert set(frontier(scene.held.order, tip)) == {wait.id, scene.answer.id}
    request = scene.request(wait, scene.answer, basis=scene.seal)
    seal = scene.sealed(request, [scene.answer, wait, request], scene.seal)
    assert seal.id in scene.held.order.nodes


def test_of_more_than_64_ends_the_last_are_followed() -> None:
    scene = Scene()
    ends = []
    for number in range(70):
        writer = Writer(1, epoch=number + 2)
        ends.append(scene.admit(writer.write(scene.held.id, said("x"), parents=[scene.answer])))
    tip = scene.held.order.nodes[scene.seal.id]
    last = sorted(ends, key=lambda e: e.order_key)[-64:]
    assert frontier(scene.held.order, tip) == tuple(sorted(e.id for e in last))
    scene.admit(Writer(1, epoch=99).write(scene.held.id, Join(), parents=last))
    assert len(frontier(scene.held.order, tip)) == 7


def test_a_late_earlier_seal_among_others_of_one_batch_is_folded_once() -> None:
    # The seal that displaces another arrives in one batch with entries that follow it.
    scene = Scene()
    again = Writer(2, epoch=2)
    body = seal_of(scene.held, scene.ask.id, (scene.hello.id, scene.ask.id), None)
    listed = [scene.hello, scene.held.log.entries[body.membership_heads[0]]]
    twin = again.write(scene.held.id, body, parents=[scene.ask], listed=listed)
    first, second = sorted([twin, scene.seal], key=lambda e: e.order_key)
    held = Conversation(scene.held.id)
    for entry in scene.held.log.entries.values():
        if entry.id not in (scene.seal.id, scene.answer.id):
            held.admit(entry)
    held.admit(second)
    held.log.admit(first)
    held.log.admit(scene.answer)
    held.order.receive([e for e in (first, scene.answer) if e.id != second.id])
    assert list(held.order.nodes) == [first.id]
    assert held.order.void == {second.id: VoidReason.SEALED_BEFORE}


def test_a_cancel_counts_while_its_author_may_write_it() -> None:
    scene, reader = Scene(), Writer(3)
    granted = scene.grant(reader, Role.READER, scene.genesis)
    wish = scene.admit(reader.write(scene.held.id, Cancel(), parents=[scene.ask]))
    assert not scene.held.log.membership.is_visible(wish)
    assert not scene.held.order.is_cancelled(scene.ask.id)
    scene.grant(reader, Role.WRITER, granted)
    assert scene.held.order.is_cancelled(scene.ask.id)


def test_a_cancel_ends_the_one_request_that_is_its_only_parent() -> None:
    scene = Scene()
    second = scene.request(scene.hello)
    both = sorted([scene.ask, second], key=lambda e: e.id)
    scene.admit(scene.ada.write(scene.held.id, Cancel(), parents=both))
    order = scene.held.order
    assert not order.is_cancelled(scene.ask.id)
    assert not order.is_cancelled(second.id)
    scene.admit(scene.ada.write(scene.held.id, Cancel(), parents=[second]))
    assert order.is_cancelled(second.id)
    assert not order.is_cancelled(scene.ask.id)


def test_a_seal_drops_out_once_a_cut_leaves_it_uncovered() -> None:
    scene = Scene()
    [grant] = scene.held.log.membership_heads()
    change = Member(Revocation(scene.hal.public))
    parents = [scene.held.log.entries[grant]]
    scene.admit(scene.ada.write(scene.held.id, change, parents=parents))
    assert not scene.held.order.nodes
    assert not scene.held.order.tips()
    assert scene.held.order.generation_of(scene.ask.id) is None


@pytest.mark.parametrize("from_scratch", [True, False])
def test_a_request_counts_once_a_grant_covers_it(from_scratch: bool) -> None:
    scene, bob, eve = Scene(), Writer(3), Writer(4)
    scene.grant(bob, Role.READER, scene.genesis)
    void = Member(Grant(eve.public, Role.WRITER))
    scene.admit(bob.write(scene.held.id, void, parents=[scene.genesis]))
    body = Request(scene.hal.public, Sampling())
    asked = scene.admit(eve.write(scene.held.id, body, parents=[scene.hello]))
    order = Order(scene.held.log) if from_scratch else scene.held.order
    assert asked.id not in order.requests
    grant = scene.grant(eve, Role.WRITER, scene.genesis)
    if from_scratch:
        order.receive([grant])
    assert asked.id in order.requests


@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_refusals_the_first_in_order_counts_whatever_that_of_arrival(
    backwards: bool,
) -> None:
    scene = Scene()
    asked = scene.request(scene.hello)
    refusals = [Writer(2, epoch=n).write(scene.held.id, answer(), parents=[asked]) for n in (5, 6)]
    for entry in refusals[:: -1 if backwards else 1]:
        scene.admit(entry)
    first = min(refusals, key=lambda e: e.order_key)
    assert scene.held.order.refusal_of == {asked.id: first.id}
    assert scene.held.order.answer(asked.id) == scene.held.log.body(first.id)


def test_a_request_without_an_answer_has_none_and_with_one_its_generation() -> None:
    scene = Scene()
    asked = scene.request(scene.hello)
    assert scene.held.order.answer(asked.id) is None
    found = scene.held.order.answer(scene.ask.id)
    assert found is not None
    assert found == scene.held.log.body(scene.answer.id)


def test_only_the_id_of_a_request_has_a_requests_body() -> None:
    scene = Scene()
    order = scene.held.order
    assert order.request(scene.ask.id) == scene.held.log.body(scene.ask.id)
    assert order.request(scene.hello.id) is None
    assert order.request(EntryId(bytes(32))) is None


def test_every_verdict_on_a_seal_has_a_next_step() -> None:
    for reason in VoidReason:
        assert reason.next_step.endswith(".")
        assert reason.value.startswith(("its ", "it ", "what ", "the ", "a "))
