"""One conversation in memory: drafts, document and damage beside its log (spec/04-link §6, §10)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from replica.conversation.conversation import Conversation, updates_of
from replica.conversation.drafts import DraftStream
from replica.document import EMPTY_UPDATE, Document
from replica.ids import Lane, Track
from replica.log.admission import Admitted, Duplicate
from replica.log.body import DocumentUpdate, Role
from replica.log.damage import Lost
from replica.log.entry import Entry
from tests.support.branches import Scene
from tests.support.call_count import grows_linearly
from tests.support.sample import Sample
from tests.support.stories import answer
from tests.support.writers import Writer


@pytest.fixture
def sample() -> Sample:
    return Sample()


# --- drafts ---------------------------------------------------------------------------


def test_a_draft_ends_with_the_answer_to_its_request_alone() -> None:
    scene = Scene()
    request, other = scene.ask(), scene.ask()
    seal = scene.seal(request)
    for entry in (request, other):
        draft = DraftStream(scene.held.id, entry.id, 1)
        scene.held.drafts[entry.id] = draft
    scene.add(scene.ada.write(scene.held.id, answer(), parents=[seal]))
    assert scene.held.drafts.keys() == {request.id, other.id}
    scene.answer(seal)
    assert scene.held.drafts.keys() == {other.id}


def test_a_later_answer_ends_no_draft() -> None:
    scene = Scene()
    request = scene.ask()
    seal = scene.seal(request)
    scene.answer(seal)
    scene.held.drafts[request.id] = DraftStream(scene.held.id, request.id, 2)
    scene.say(seal)
    scene.answer(seal)
    assert scene.held.drafts.keys() == {request.id}


# --- the document ---------------------------------------------------------------------


def _document(sample: Sample, count: int) -> list[Entry]:
    """Write a lane of the document track; hold none of it."""
    written = [sample.genesis]
    for _ in range(count):
        body = DocumentUpdate(EMPTY_UPDATE + b"\x00")
        written.append(sample.owner.write(sample.id, body, parents=written[-1:]))
    return written[1:]


def test_the_document_is_built_anew_only_where_the_membership_changed(sample: Sample) -> None:
    built = sample.held.document
    assert sample.held.document is built
    sample.say(sample.genesis)
    assert sample.held.document is built
    sample.grant(Writer(2), Role.READER)
    again = sample.held.document
    assert again is not built
    first, second = _document(sample, 2)
    sample.add(first, second)
    assert sample.held.document is again
    assert again.heads == (second.id,)


def test_an_update_that_is_covered_late_is_in_the_document(sample: Sample) -> None:
    stranger = Writer(2)
    body = DocumentUpdate(EMPTY_UPDATE + b"\x00")
    stray = stranger.write(sample.id, body, parents=[sample.genesis])
    assert sample.held.document.heads == (sample.genesis.id,)
    sample.add(stray)
    assert sample.held.document.heads == (sample.genesis.id,)
    own = sample.owner.write(sample.id, body, parents=[stray])
    sample.add(own)
    assert sample.held.document.heads == (own.id,)
    assert sample.held.document.projection == Document(updates_of(sample.held.log)).projection


def test_an_update_that_follows_a_missing_body_is_read_behind_it(sample: Sample) -> None:
    first, second, third = _document(sample, 3)
    document = sample.held.document
    sample.add(first, replace(second, body=None))
    assert sample.held.document is document
    assert document.heads == (first.id,)
    sample.add(third)
    assert sample.held.document.heads == (first.id,)
    sample.add(second)
    assert sample.held.document.heads == (third.id,)


def test_an_edit_costs_as_much_however_many_came_before() -> None:
    def work_of(n: int) -> Callable[[], object]:
        sample = Sample()

        def work() -> None:
            for number in range(n):
                edit = sample.held.document.edit(
                    Lane(sample.owner.public, sample.owner.epoch, Track.DOCUMENT)
                )
                edit.set_meta("title", f"title {number}")
                heads = [sample.held.log.entries[head] for head in sample.held.document.heads]
                body = DocumentUpdate(edit.update())
                sample.add(sample.owner.write(sample.id, body, parents=heads))
            assert sample.held.document.projection.meta == {"title": f"title {n - 1}"}

        return work

    assert grows_linearly(work_of, 25)


def test_an_update_without_its_body_holds_back_all_that_follow_it(sample: Sample) -> None:
    first, second, third = _document(sample, 3)
    sample.add(first, replace(second, body=None), third)
    assert [u.id for u in updates_of(sample.held.log)] == [sample.genesis.id, first.id]
    sample.add(second)
    written = [sample.genesis, first, second, third]
    assert [u.id for u in updates_of(sample.held.log)] == [entry.id for entry in written]


def test_a_void_update_is_empty_and_its_ancestors_stay_reachable(sample: Sample) -> None:
    host = Writer(2)
    sample.grant(host, Role.HOST)
    body = DocumentUpdate(EMPTY_UPDATE + b"\x00")
    sample.add(host.write(sample.id, body, parents=[sample.genesis]))
    sample.say(sample.genesis)
    assert [u.update for u in updates_of(sample.held.log)] == [EMPTY_UPDATE, EMPTY_UPDATE]


# --- damage ---------------------------------------------------------------------------


def test_a_pending_entry_that_comes_again_unchanged_is_not_stored_twice(sample: Sample) -> None:
    gone, kept = sample.chain(2)
    held = Conversation.restore(sample.id, [sample.genesis, kept], Lost(frozenset([gone.id])))
    assert isinstance(held.admit(kept), Duplicate)
    verdict = held.admit(gone)
    assert isinstance(verdict, Admitted)
    assert (verdict.entries, verdict.unstored) == ((gone, kept), (gone,))


def test_a_pending_entry_that_was_given_its_body_is_stored_again(sample: Sample) -> None:
    gone, kept = sample.chain(2)
    bare = replace(kept, body=None)
    held = Conversation.restore(sample.id, [sample.genesis, bare], Lost(frozenset([gone.id])))
    held.admit(kept)
    verdict = held.admit(gone)
    assert isinstance(verdict, Admitted)
    assert verdict.unstored == (gone, kept)
