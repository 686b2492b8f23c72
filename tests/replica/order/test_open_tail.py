"""The ends that are kept while entries come are those found from scratch (ORD-10)."""

from random import Random

from replica.conversation.conversation import Conversation
from replica.ids import EntryId, Track
from replica.log.body import Cancel, Cut, Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Conflict, Entry
from replica.order.ends import ends
from replica.order.node import SealNode
from replica.order.tail import frontier, start, tail
from tests.replica.order.turn import Turn
from tests.support.call_count import calls
from tests.support.sample import Sample
from tests.support.stories import Story
from tests.support.writers import Writer, said


def _from_scratch(held: Conversation, tip: SealNode | None) -> tuple[EntryId, ...]:
    order = held.order
    return ends(held.log, [held.log.entries[start(order, tip)], *tail(order, tip)])


def test_after_each_entry_the_ends_are_those_found_from_scratch() -> None:
    kept_often = 0
    for seed in range(20):
        story = Story(seed)
        story.grow(40)
        held = Conversation(story.held.id)
        for entry in story.entries:
            before = held.order.open_tail
            held.admit(entry, verified=True)
            kept_often += before is not None and held.order.open_tail is before
            if held.log.genesis is None:
                continue
            tips = held.order.tips()
            tip = tips[-1] if tips else None
            assert frontier(held.order, tip) == _from_scratch(held, tip)
    assert kept_often > 200


def test_an_entry_of_a_key_that_was_a_writer_for_a_while_leaves_the_ends() -> None:
    """Its role came and went since the ends were asked for: before and behind it has none."""
    sample, other, guest = Sample(), Writer(2), Writer(3)
    owner, genesis = sample.owner, sample.genesis

    def member(author: Writer, change: Grant | Revocation, after: Entry) -> Entry:
        entry = author.write(sample.id, Member(change), parents=[after])
        sample.add(entry)
        return entry

    owned = member(owner, Grant(other.public, Role.OWNER), genesis)
    assert frontier(sample.held.order, None) == (genesis.id,)
    granted = member(other, Grant(guest.public, Role.WRITER), owned)
    sample.add(guest.write(sample.id, said("hello"), parents=[genesis]))
    member(owner, Revocation(other.public, ()), granted)
    assert frontier(sample.held.order, None) == (genesis.id,)


def test_the_first_entry_behind_the_request_that_comes_after_the_answer_is_an_end() -> None:
    turn = Turn()
    tip = turn.held.order.nodes[turn.seal.id]
    assert frontier(turn.held.order, tip) == (turn.answer.id,)
    wait = turn.say("wait", turn.ask)
    assert frontier(turn.held.order, tip) == tuple(sorted((turn.answer.id, wait.id)))


def test_a_seal_that_an_entry_brings_back_takes_what_it_lists_out_of_the_tail() -> None:
    turn, bob, ida = Turn(), Writer(3), Writer(4)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    granted = turn.grant(ida, Role.HOST, granted)
    held, order = turn.held, turn.held.order
    say = turn.admit(bob.write(held.id, said("beside"), parents=[turn.ask]))
    fork = Request(ida.public, Sampling())
    ask = turn.admit(bob.write(held.id, fork, parents=[say], conflict=Conflict.FORK))
    turn.admit(bob.write(held.id, Cancel(), parents=[ask]))
    other = turn.sealed(ask, [turn.hello, turn.ask, say, ask], by=ida)
    tip = order.nodes[turn.seal.id]
    assert frontier(order, tip) == (turn.answer.id,)
    revoked = Member(Revocation(ida.public, ()))
    turn.admit(turn.ada.write(held.id, revoked, parents=[granted]))
    assert set(frontier(order, tip)) == {turn.answer.id, ask.id}
    behind = bob.write(held.id, said("behind the other seal"), parents=[other], basis=other)
    turn.admit(behind)
    assert other.id in order.nodes
    assert frontier(order, tip) == (turn.answer.id,)


def test_the_next_parents_cost_the_same_behind_a_short_and_a_long_tail() -> None:
    def work(count: int) -> int:
        sample = Sample()
        sample.add(*sample.chain(count))
        frontier(sample.held.order, None)
        last = sample.owner.last(sample.id)
        assert last is not None
        entry = sample.owner.write(sample.id, said("more"), parents=[last])
        sample.held.admit(entry, verified=True)
        return calls(lambda: frontier(sample.held.order, None))

    assert work(400) <= work(40)


def _cut(rng: Random, owner: Writer, held: Conversation, writer: Writer) -> Entry:
    """Let the owner revoke a writer, and keep the beginning of its lane."""
    lane = [e for e in held.log.entries.values() if e.header.author == writer.public]
    at = held.log.membership.kept.get(writer.public)
    lane = sorted((e for e in lane if at is None or e.id in at), key=lambda e: e.header.seq)
    kept = lane[: rng.randrange(len(lane))] if lane and rng.random() < 0.3 else lane[:-1]
    cuts = [Cut(e.header.epoch, e.header.track, e.header.seq, e.id) for e in kept[-1:]]
    last = owner.last(held.id, Track.MEMBERSHIP)
    assert last is not None
    change = Member(Revocation(writer.public, tuple(cuts)))
    return owner.write(held.id, change, parents=[last], listed=kept[-1:])


def test_entries_that_cuts_take_out_leave_the_ends_found_from_scratch() -> None:
    kept_often = 0
    for seed in range(12):
        rng, owner, writers = Random(seed), Writer(1), [Writer(n) for n in (2, 3, 4)]
        genesis = owner.genesis()
        held = Conversation(genesis.conversation)
        held.admit(genesis)
        last = genesis
        for writer in writers:
            grant = Member(Grant(writer.public, Role.WRITER))
            last = owner.write(held.id, grant, parents=[last])
            held.admit(last)
        said_so_far = [genesis]
        for step in range(60):
            before = held.order.open_tail
            writer = rng.choice(writers)
            written = any(e.header.author == writer.public for e in said_so_far)
            if step > 20 and written and rng.random() < 0.4:
                held.admit(_cut(rng, owner, held, writer))
            else:
                latest = said_so_far[-8:]
                parents = rng.sample(latest, min(len(latest), rng.choice((1, 1, 2, 3))))
                entry = writer.write(held.id, said(str(step)), parents=parents)
                held.admit(entry, verified=True)
                said_so_far.append(entry)
            assert frontier(held.order, None) == _from_scratch(held, None), (seed, step)
            kept_often += before is not None and held.order.open_tail is before
    assert kept_often > 12 * 50


def test_a_cut_moved_by_one_entry_costs_the_same_on_a_short_and_a_long_lane() -> None:
    def work(count: int) -> int:
        sample = Sample()
        writer = Writer(7)
        sample.grant(writer, Role.WRITER)
        lane = [writer.write(sample.id, said("0"), parents=[sample.genesis])]
        for number in range(1, count):
            lane.append(writer.write(sample.id, said(str(number)), parents=[lane[-1]]))
        sample.add(*lane)
        frontier(sample.held.order, None)

        def cut(at: Entry) -> None:
            h = at.header
            change = Revocation(h.author, (Cut(h.epoch, h.track, h.seq, at.id),))
            last = sample.owner.last(sample.id, Track.MEMBERSHIP)
            assert last is not None
            revoked = sample.owner.write(sample.id, Member(change), parents=[last], listed=[at])
            sample.add(revoked)

        cut(lane[-2])
        frontier(sample.held.order, None)
        cut(lane[-3])
        before = sample.held.work
        frontier(sample.held.order, None)
        assert frontier(sample.held.order, None) == (lane[-3].id,)
        return sample.held.work - before

    assert work(200) <= work(20)
