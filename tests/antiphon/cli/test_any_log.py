"""Everything that shows a log shows every admitted one (ERR-2)."""

import json

import pytest

from antiphon.cli.commands.branches import branches_of
from antiphon.cli.common.session import Choices
from antiphon.cli.views.branch_view import queue_words, view_of
from antiphon.cli.views.graph import draw
from antiphon.cli.views.names import NOBODY
from antiphon.cli.views.records import entry_record
from antiphon.cli.views.rows import row_of
from antiphon.library.news import answer_of, history_of
from replica.conversation import (
    Conversation,
    KeyedRun,
    awaited,
    calls_ahead,
    hosts_awaited,
    newest_place,
    next_step,
    offered_tools,
    open_calls,
    place_at,
    place_instead_of,
    place_on_branch,
    queued_place,
    result_place,
    retry_place,
)
from replica.conversation.runs import calls_behind
from replica.ids import EntryId, PublicKey, Track
from replica.log.body import (
    Join,
    Message,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
    ToolStarted,
)
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.order.tail import frontier
from replica.refusals import ArgumentInvalid
from tests.support.sample import Sample
from tests.support.stories import Story, seal_of
from tests.support.writers import Writer, said

NOBODY_S = PublicKey(bytes(32))


def _show(held: Conversation) -> int:
    """Call all that reads a log for people and programs; return the lines of its graph."""
    places = [newest_place(held)]
    for entry in held.log.entries.values():
        json.dumps(entry_record(held, entry))
        assert row_of(held, entry).id
        if entry.header.kind == Kind.MESSAGE:
            places.append(place_instead_of(held, entry.id))
        try:
            places.append(place_at(held, entry.id))
        except ArgumentInvalid:
            continue
    for place in places:
        queue_words(held, view_of(held, place), NOBODY)
        offered_tools(held, place)
        calls_ahead(held, place)
    for request in held.order.requests:
        _follow(held, request)
    for place in places:
        list(history_of(held, place, held.creator or NOBODY_S))
    branches_of(held, Choices())
    open_calls(held)
    hosts_awaited(held)
    return sum(1 for _ in draw(held, NOBODY))


def _follow(held: Conversation, request: EntryId) -> None:
    """Read a request as a run does that waits for it, and as one that ended."""
    run = KeyedRun(requests=(request,))
    next_step(held, run)
    answer_of(held, request)
    queued = queued_place(held, request)
    for place in (place_on_branch(held, request), retry_place(held, request), queued):
        if place is not None:
            awaited(held, place)
            calls_ahead(held, place)
    if held.order.generation_of(request) is not None:
        calls_behind(held, request)
        result_place(held, request)


class ToolStory(Story):
    """A story in which anybody calls tools, and closes calls of anybody."""

    def say(self) -> None:
        """Write calls, starts and results of calls, in any order."""
        author, call_id = self.random.choice(self.everyone), self.random.choice("abc")
        parts = self.random.choices(
            (
                ToolCall(call_id, "book", "{}"),
                ToolStarted(call_id, "0" * 32),
                ToolResult(call_id, (Text("booked"),), self.random.random() < 0.5),
            ),
            k=2,
        )
        body = Message(self.random.choice(list(Speaker)), tuple(parts))
        parents = self._parents()
        last = self.entries[-1]
        if last.header.kind == Kind.GENERATION:
            parents = [last]
        self.add(author.write(self.held.id, body, parents=parents))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", [Story, ToolStory])
def test_logs_with_forgeries_forks_and_revocations_are_shown(kind: type[Story], seed: int) -> None:
    story = kind(seed)
    for _ in range(2):
        story.grow(30)
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
