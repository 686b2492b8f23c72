"""What is collected of a conversation for a replay."""

from dataclasses import replace

import pytest

from model_host.errors import ReplayTooLarge
from model_host.refusals import BodyUnavailable
from model_host.replay import case
from model_host.replay.case import collect
from replica.ids import EntryId
from replica.log.body import FinishReason, Generation
from replica.order.tail import frontier
from replica.refusals import ArgumentInvalid
from tests.model_host.replay.replayed import Answered
from tests.support.writers import said


def test_seals_come_with_parents_first_and_answers_in_the_order_of_the_log():
    scene = Answered()
    answers = [scene.asks(text) for text in "abc"]
    collected = collect(scene.held)
    seen = {None}
    for sealed in collected.seals:
        assert sealed.parent in seen
        seen.add(sealed.seal_id)
    assert [*collected.order] == answers
    assert collected.log_digest == scene.held.log.digest
    assert (collected.refused, collected.open) == (0, 0)


def test_refusals_and_open_requests_are_counted():
    scene = Answered()
    scene.asks("a")
    refused = scene.ask("b")
    basis = scene.held.log.entries[refused].header.basis
    entry = scene.host.write(
        scene.held, Generation((), (), 0, FinishReason.REFUSED), parents=(refused,), basis=basis,
        salt=bytes(16), time_ms=1,
    )  # fmt: skip
    scene.held.admit(entry)
    collected = collect(scene.held)
    assert (len(collected.order), collected.refused) == (1, 1)


def test_from_an_entry_only_what_follows_it_is_collected_with_its_ancestors():
    scene = Answered()
    first, second, third = [scene.asks(text) for text in "abc"]
    assert [*collect(scene.held, second).order] == [second, third]
    assert len(collect(scene.held, third).seals) == 3
    assert [*collect(scene.held, first).order] == [first, second, third]
    with pytest.raises(ArgumentInvalid):
        collect(scene.held, bytes(32))


def test_an_entry_that_leaves_no_answer_to_check_is_refused():
    scene = Answered()
    scene.asks("a")
    for first in (scene.held.id, scene.ask("b")):
        with pytest.raises(ArgumentInvalid, match="no answer has"):
            collect(scene.held, EntryId(first))
    assert collect(Answered().held).order == ()


def test_a_missing_body_is_part_of_what_is_collected():
    scene = Answered()
    first, second = scene.asks("a"), scene.asks("b")
    log = scene.held.log
    log.entries[first] = replace(log.entries[first], body=None)
    log._bodies.forget(first)
    sealed = {one.case.entry: one for one in collect(scene.held).seals if one.case}
    assert sealed[first].case.recorded is None
    assert isinstance(sealed[second].listing, BodyUnavailable)
    assert sealed[second].listing.missing == (first,)


def test_seals_that_list_the_same_entries_share_them_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
):
    scene = Answered()
    (text,) = frontier(scene.held.order, None)
    last = scene.add(said("a"), [scene.held.log.entries[text]])
    for _ in range(2):
        scene.answers_though_refused(last)
    one, other = collect(scene.held).seals
    assert one.listing.items[-2] is other.listing.items[-2]
    assert one.listing.items[-1] is not other.listing.items[-1]
    listed = len(one.seal.entries) + len(other.seal.entries)
    monkeypatch.setattr(case, "REPLAY_ENTRIES_MAX", listed)
    assert len(collect(scene.held).order) == 2
    monkeypatch.setattr(case, "REPLAY_ENTRIES_MAX", listed - 1)
    with pytest.raises(ReplayTooLarge):
        collect(scene.held)
    assert len(collect(scene.held, one.seal_id).order) == 1
