"""Everything that shows a log shows every admitted one (ERR-2)."""

import json

import pytest

from antiphon.cli.graph import draw
from antiphon.cli.names import NOBODY
from antiphon.cli.rows import entry_record, row_of
from replica.conversation.conversation import Conversation
from replica.conversation.place import newest_place, place_at
from replica.ids import Track
from replica.log.body import Join, Request, Role, Sampling
from replica.log.entry import Entry
from replica.order.tail import frontier
from replica.refusals import ArgumentInvalid
from tests.support.sample import Sample
from tests.support.stories import Story, seal_of
from tests.support.writers import Writer, said


def _show(held: Conversation) -> int:
    for entry in held.log.entries.values():
        json.dumps(entry_record(held, entry))
        assert row_of(held, entry).id
        try:
            place_at(held, entry.id)
        except ArgumentInvalid:
            continue
    newest_place(held)
    return sum(1 for _ in draw(held, NOBODY))


@pytest.mark.parametrize("seed", range(30))
def test_logs_with_forgeries_forks_and_revocations_are_shown(seed: int) -> None:
    story = Story(seed)
    story.grow(60)
    assert _show(story.held) > 0


def test_speakers_of_no_name_are_shown_by_number() -> None:
    sample, reader = Sample(), Writer(2)
    strange = sample.add(sample.owner.write(sample.id, said("x", 99), parents=[sample.genesis]))
    void = reader.write(sample.id, said("y", 99), parents=[strange])
    sample.held.admit(void)
    assert entry_record(sample.held, strange)["role"] == "99"
    assert _show(sample.held) > 1


def test_unknown_kinds_and_bodies_of_other_kinds_are_shown() -> None:
    sample = Sample()
    for kind, track in ((77, Track.CONVERSATION), (11, Track.DOCUMENT), (10, Track.CONVERSATION)):
        last = sample.genesis
        sample.held.admit(
            Writer(1, epoch=kind).write(sample.id, Join(), parents=[last], kind=kind, track=track)
        )
    assert _show(sample.held) > 0


def _sealed(sample: Sample, host: Writer, basis: Entry | None) -> Entry:
    body = Request(host.public, Sampling())
    parents = [sample.genesis]
    ask = sample.owner.write(sample.id, body, parents=parents, basis=basis, conflict=1)
    sample.held.admit(ask, verified=True)
    sealing = seal_of(sample.held, ask.id, (ask.id,), basis.id if basis else None)
    listed = [ask, *sample.at(*sealing.membership_heads), *([basis] if basis else [])]
    seal = host.write(sample.id, sealing, parents=[ask], listed=listed)
    sample.held.admit(seal, verified=True)
    return seal


def test_branches_nested_deeper_than_calls_can_be_are_drawn() -> None:
    sample, host = Sample(), Writer(7)
    sample.grant(host, Role.HOST)
    chain = [_sealed(sample, host, None)]
    while len(chain) < 600:
        chain.append(_sealed(sample, host, chain[-1]))
    for basis in reversed(chain):  # the branch nearest to the first seal is the newest
        _sealed(sample, host, basis)
    assert len(sample.held.order.nodes) == 1_200
    assert max(len(line.drawing) for line in draw(sample.held, NOBODY)) > 1_100


def test_a_message_without_its_body_is_no_parent_of_the_next_entry() -> None:
    sample = Sample()
    first = sample.say(sample.genesis)
    written = sample.owner.write(sample.id, said("gone"), parents=[first])
    bodyless = Entry(written.header_bytes, written.signature, None, written.id, written.header)
    assert frontier(sample.held.order, None) == (first.id,)
    sample.held.admit(bodyless)
    assert frontier(sample.held.order, None) == (first.id,), "its words can't be in any context"
    sample.held.admit(written)
    assert frontier(sample.held.order, None) == (written.id,)
