"""A Push in parts is one call: what a later part brings, an earlier one may need."""

from dataclasses import replace

from replica.link.messages import Entries
from replica.link.steps import STEP_ENTRIES
from replica.log.body import Cut, Grant, Member, Revocation, Role
from syncd.calls.pushing import FAULT_IDS_MAX, Outcomes
from tests.support.call_count import calls
from tests.support.scene import Scene
from tests.support.writers import Writer, said


def push(scene: Scene, *parts: Entries) -> Outcomes:
    pushing = scene.hub.begin_push(scene.writer.public)
    for part in parts:
        pushing.receive(part, 0.0)
    outcomes = pushing.outcomes(scene.id)
    pushing.end()
    return outcomes


def test_an_entry_waits_for_those_of_later_parts() -> None:
    scene = Scene().begin()
    line = scene.chain(3)
    parts = [Entries(scene.id, (entry,)) for entry in reversed(line)]
    assert push(scene, *parts) == dict.fromkeys(e.id for e in line)
    assert all(e.id in scene.held.log.entries for e in line)


def test_an_entry_of_which_one_copy_has_a_wrong_body_is_durable_by_the_other() -> None:
    scene = Scene().begin()
    for entry, is_first, is_parted in zip(
        scene.chain(4), (True, False) * 2, (True, True, False, False), strict=True
    ):
        wrong = replace(entry, body=b"another")
        copies = (wrong, entry) if is_first else (entry, wrong)
        parts = [(copy,) for copy in copies] if is_parted else [copies]
        assert push(scene, *(Entries(scene.id, part) for part in parts)) == {entry.id: None}
        assert scene.held.log.entries[entry.id].body == entry.body


def test_a_revocation_waits_for_the_entries_that_its_cuts_name() -> None:
    scene = Scene().begin()
    bob, owner = Writer(5), Writer(1, epoch=3)
    grant = owner.write(scene.id, Member(Grant(bob.public, Role.WRITER)), parents=[scene.genesis])
    line = scene.chain(STEP_ENTRIES)
    last = bob.write(scene.id, said("x"), parents=[line[-1]])
    cut = Cut(last.header.lane.epoch, last.header.lane.track, last.header.seq, last.id)
    revocation = owner.write(
        scene.id, Member(Revocation(bob.public, (cut,))), parents=[grant], listed=[last]
    )
    sent = (grant, revocation, *line)
    outcomes = push(scene, Entries(scene.id, sent), Entries(scene.id, (last,)))
    assert outcomes == dict.fromkeys(e.id for e in (*sent, last))
    assert not scene.held.is_member(bob.public)


def test_an_entry_that_a_later_part_covers_is_not_refused() -> None:
    scene = Scene().begin()
    bob, owner = Writer(5), Writer(1, epoch=3)
    grant = owner.write(scene.id, Member(Grant(bob.public, Role.READER)), parents=[scene.genesis])
    word = bob.write(scene.id, said("x"), parents=[scene.genesis])
    other = bob.write(scene.id, said("nobody follows this"), parents=[scene.genesis])
    reply = owner.write(scene.id, said("y"), parents=[word])
    parts = [Entries(scene.id, part) for part in ((grant, word, other), (reply,))]
    outcomes = push(scene, *parts)
    refused = {i: fault.reason for i, fault in outcomes.items() if fault is not None}
    assert refused == {other.id: "ROLE_FORBIDS"}
    assert {word.id, reply.id} <= set(scene.held.log.covered())


def test_what_is_pending_at_the_end_is_refused_with_the_entries_it_lacks() -> None:
    scene = Scene().begin()
    first, second, third = scene.chain(3)
    outcomes = push(scene, Entries(scene.id, (third,)), Entries(scene.id, (second,)))
    assert {i: f and (f.reason, f.missing) for i, f in outcomes.items()} == {
        second.id: ("ENTRIES_MISSING", (first.id,)),
        third.id: ("ENTRIES_MISSING", (first.id,)),
    }
    assert not scene.held.log.pending


def test_an_entry_that_lacks_a_grant_alone_is_refused_with_no_missing_ids() -> None:
    scene = Scene().begin()
    entry = Writer(9).write(scene.id, said("x"), parents=[scene.genesis])
    fault = push(scene, Entries(scene.id, (entry,)))[entry.id]
    assert fault is not None
    assert (fault.reason, fault.missing) == ("ENTRIES_MISSING", ())


def test_a_long_chain_without_its_beginning_costs_as_much_for_each_entry() -> None:
    def work(count: int) -> int:
        scene = Scene().begin()
        line = scene.chain(count + 1)[1:]
        pushing = scene.hub.begin_push(scene.writer.public)
        pushing.receive(Entries(scene.id, tuple(line)), 0.0)
        found = calls(lambda: pushing.outcomes(scene.id))
        pushing.end()
        return found

    assert work(160) < 9 * work(20)


def test_what_an_entry_lacks_behind_many_others_is_told_up_to_a_bound() -> None:
    scene = Scene().begin()
    line = scene.chain(FAULT_IDS_MAX + 10)
    twins = [Writer(1, epoch=number + 50) for number in range(len(line))]
    lacking = [t.write(scene.id, said("t"), parents=[scene.genesis]) for t in twins]
    sent = [
        Writer(1, epoch=number + 500).write(scene.id, said("s"), parents=[one])
        for number, one in enumerate(lacking)
    ]
    ends = [
        Writer(1, epoch=number).write(scene.id, said("e"), parents=sent[start : start + 40])
        for number, start in ((900, 0), (901, 34))
    ]
    last = Writer(1, epoch=902).write(scene.id, said("l"), parents=ends)
    outcomes = push(scene, Entries(scene.id, (last, *ends, *sent)))
    fault = outcomes[last.id]
    assert fault is not None
    assert len(fault.missing) == FAULT_IDS_MAX
    assert set(fault.missing) <= {entry.id for entry in lacking}
