"""Bugs put into the core on purpose: the oracle must find each of them.

This is the test of the simulation itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.simulation.mix import Mix
from tests.simulation.planted import Patch, host, hub, link, order, shapes, storage
from tests.simulation.world import run_seed

OWN_FAULTS = ("AttributeError", "NameError", "TypeError")
"""Errors of planted code that no longer fits the code around it, which find nothing."""

MARGIN = 3
"""Factor on the seeds that a bug needs today, before its test fails.

The seed that finds it today comes first, so that the test runs one seed until the core changes.
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the mixes that show it, and the first seed that finds it today."""

    bug: Callable[[], Patch]
    shape: Callable[[Mix], Mix]
    first: int
    start: int = 0
    """The seed from which `first` was looked for, where few seeds show the bug."""

    @property
    def budget(self) -> range:
        """Seeds tried."""
        return range(self.first, self.first + MARGIN * (self.first - self.start + 1))


BUGS = [
    Planted(storage.sends_before_it_persists, shapes.drawn, 0),
    Planted(storage.persists_three_entries_at_most, shapes.drawn, 0),
    Planted(storage.starts_with_an_empty_shelf, shapes.drawn, 2),
    Planted(storage.writes_on_in_the_epoch_of_a_restored_disk, shapes.rolling_back, 2),
    Planted(storage.forgets_the_losses_of_the_disk, shapes.damaging, 1),
    Planted(storage.stores_pending_entries_of_the_store_again, shapes.damaging, 5),
    Planted(storage.skips_the_third_entry_of_a_lane, shapes.drawn, 0),
    Planted(storage.performs_in_reverse, shapes.calm, 1),
    Planted(storage.forgets_the_work_queued_behind_a_refused_commit, shapes.refusing, 2),
    Planted(storage.performs_refused_commits, shapes.refusing, 1),
    Planted(storage.keeps_refused_entries_in_memory, shapes.refusing, 1),
    Planted(storage.never_reopens_after_a_refused_commit, shapes.refusing, 2),
    Planted(storage.goes_on_with_a_link_that_is_gone, shapes.drawn, 2),
    Planted(storage.counts_its_own_entry_as_acked, shapes.drawn, 2),
    Planted(storage.counts_released_entries_as_acked, shapes.damaging, 17),
    Planted(storage.sends_of_a_blocked_conversation, shapes.damaging, 1),
    Planted(link.never_checks_again, shapes.losing_frames, 0),
    Planted(link.sends_nothing_twice, shapes.losing_frames, 3),
    Planted(link.never_verifies_an_idle_conversation, shapes.losing_frames, 24),
    Planted(link.never_grants_credit, shapes.drawn, 5),
    Planted(link.leaves_the_first_of_a_suffix_out, shapes.drawn, 0),
    Planted(link.counts_a_guess_as_an_ack, shapes.drawn, 0),
    Planted(link.gives_up_a_conversation_the_hub_lost, shapes.drawn, 0),
    Planted(link.accepts_drafts_with_gaps, shapes.losing_frames, 13, start=10),
    Planted(link.sends_entries_in_flight_again, shapes.drawn, 51, start=30),
    Planted(link.compares_after_every_frame_of_entries, shapes.slow, 0),
    Planted(link.calls_every_digest_equal_at_the_hub, shapes.drawn, 0),
    Planted(link.calls_every_digest_equal_at_the_client, shapes.losing_frames, 0),
    Planted(link.puts_a_comparison_off_for_ever, shapes.losing_frames, 3),
    Planted(link.settles_before_the_hub_answers_an_open, shapes.lagging, 0),
    Planted(link.counts_lanes_the_hub_is_ahead_on_as_acked, shapes.forking, 0),
    Planted(link.answers_a_digest_ahead_of_the_entries, shapes.syncing, 27),
    Planted(link.takes_a_late_answer_for_one_to_the_last_open, shapes.syncing, 35, start=32),
    Planted(link.compares_nothing_that_the_application_asks_for, shapes.syncing, 1),
    Planted(hub.checks_no_membership_at_delivery, shapes.cutting, 0),
    Planted(hub.lets_everyone_read, shapes.drawn, 5),
    Planted(hub.lists_conversations_of_others, shapes.drawn, 0),
    Planted(hub.streams_drafts_to_links_that_did_not_open, shapes.calm, 7),
    Planted(hub.streams_no_drafts, shapes.calm, 1),
    Planted(hub.forgets_who_waits_for_a_later_step, shapes.drawn, 4),
    Planted(hub.offers_nothing_to_other_links, shapes.calm, 1),
    Planted(hub.sends_entries_back_to_their_sender, shapes.calm, 1),
    Planted(hub.goes_on_with_a_conversation_that_was_closed, shapes.drawn, 2),
    Planted(hub.forgets_no_refused_entries, shapes.refusing, 5),
    Planted(hub.evicts_unwritten_conversations, shapes.crowding, 0),
    Planted(hub.acks_nothing, shapes.slow, 0),
    Planted(hub.acks_whatever_it_receives, shapes.losing_frames, 3),
    Planted(order.sees_no_lane_diverge, shapes.forking, 114, start=109),
    Planted(order.digests_positions_without_ids, shapes.drawn, 0),
    Planted(order.releases_nothing_from_pending, shapes.drawn, 0),
    Planted(order.counts_entries_outside_a_cut, shapes.cutting, 8),
    Planted(order.admits_a_seal_before_the_entries_it_lists, shapes.drawn, 0),
    Planted(order.covers_no_ancestors, shapes.cutting, 8),
    Planted(order.counts_no_resignation, shapes.resigning, 0),
    Planted(order.offers_nothing_that_a_grant_made_covered, shapes.promoting, 4),
    Planted(order.judges_a_seal_by_the_membership_of_now, shapes.cutting, 21),
    Planted(order.ignores_the_basis, shapes.drawn, 19, start=15),
    Planted(order.breaks_ties_between_tips_by_arrival, shapes.parted, 6),
    Planted(order.puts_the_newest_tip_first, shapes.drawn, 2),
    Planted(order.forgets_messages_beside_a_sealed_request, shapes.parted, 3),
    Planted(order.breaks_ties_in_a_tail_by_arrival, shapes.parted, 7),
    Planted(order.breaks_ties_in_a_seal_by_arrival, shapes.parted, 4),
    Planted(order.merges_a_document_in_another_order, shapes.parted, 18),
    Planted(order.shows_updates_outside_a_cut, shapes.cutting, 8, start=4),
    Planted(order.leaves_a_queued_request_without_the_answer_before_it, shapes.calm, 2),
    Planted(order.closes_every_request, shapes.cancelling, 7),
    Planted(host.runs_a_request_twice, shapes.drawn, 0),
    Planted(host.resumes_nothing, shapes.crashing, 15),
    Planted(host.answers_again, shapes.drawn, 0),
    Planted(host.begins_before_it_is_synchronized, shapes.crashing, 4),
    Planted(host.begins_on_a_busy_branch, shapes.cancelling, 0),
    Planted(host.answers_for_another_host, shapes.parted, 0),
    Planted(host.does_not_wait_for_the_answer_before, shapes.calm, 209, start=27),
]


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.bug.__name__)
def test_the_oracle_finds(planted: Planted):
    with planted.bug():
        problems = (run_seed(seed, planted.shape).problem for seed in planted.budget)
        found = next(filter(None, problems), "")
    assert found
    assert not found.startswith(OWN_FAULTS), f"the planted code itself does not run: {found}"


def test_every_bug_is_planted_once():
    names = [planted.bug.__name__ for planted in BUGS]
    assert len(names) == len(set(names)) >= 40


# A list in the order of BUGS: the workers of pytest-xdist must collect one order of tests.
SHAPES = list(dict.fromkeys(planted.shape for planted in BUGS))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_no_shape_breaks_a_promise_by_itself(shape: Callable[[Mix], Mix]):
    assert [run_seed(seed, shape).problem for seed in range(2)] == [""] * 2
