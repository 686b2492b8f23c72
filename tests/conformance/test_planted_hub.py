"""The kit finds each fault that is put into our hub, by the case meant for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.conformance.io import calls
from antiphon.conformance.io.hub import TABLE, HubRun, Scale, judge, judge_hub
from antiphon.conformance.report import failed
from replica import limits
from syncd.io import blob_stores
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.conformance import planted_blobs as blobs
from tests.conformance import planted_entries as entries
from tests.conformance import planted_hints as hints
from tests.conformance import planted_hub as own
from tests.simulation.planted import hub, link

OWN_FAULTS = ("AttributeError", "NameError", "TypeError")
"""Errors of planted code that no longer fits the code around it, which find nothing."""
CASE_SECONDS_MAX = 1.0
"""How long a case waits for an answer that a fault withholds."""


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(calls, "END_S", 0.3)
    monkeypatch.setattr(blob_stores, "SWEEP_EVERY_S", 0.2)
    monkeypatch.setattr("syncd.io.server.STOP_GRACE_S", 0.1)


PLANTED = [
    (own.accepts_any_proof, "authenticate/a-proof-needs-the-key-and-the-role"),
    (own.accepts_any_ticket, "authenticate/every-call-needs-a-ticket"),
    (own.accepts_expired_tickets, "authenticate/a-ticket-ends"),
    (own.needs_no_hello, "greeting/nothing-precedes-hello"),
    (own.greets_any_version, "greeting/a-common-version-is-needed"),
    (own.believes_any_host, "greeting/a-host-describes-its-own-key-within-limits"),
    (own.believes_any_recommendation, "greeting/recommended-sampling-is-for-any-answer"),
    (own.sorts_hosts_by_key, "greeting/hosts-are-named-those-linked-longest-first"),
    (own.vouches_for_all_hosts, "greeting/hosts-are-named-those-linked-longest-first"),
    (own.parses_frames_of_any_size, "greeting/a-frame-has-a-greatest-size"),
    (own.counts_no_items, "greeting/items-are-counted-before-they-are-parsed"),
    (own.heeds_no_credit, "credit/a-hub-stops-at-the-credit-and-goes-on-with-more"),
    (own.forgets_lost_bytes, "credit/bytes-that-a-ping-names-count-as-received"),
    (own.numbers_no_answers, "opening/another-digest-is-answered-with-heads"),
    (own.sends_heads_for_an_equal_digest, "opening/an-equal-digest-is-all-that-is-sent"),
    (link.calls_every_digest_equal_at_the_hub, "opening/another-digest-is-answered-with-heads"),
    (link.leaves_the_first_of_a_suffix_out, "opening/all-entries-are-sent-in-send-order"),
    (own.sends_entries_in_any_order, "opening/all-entries-are-sent-in-send-order"),
    (own.sees_no_lane_diverge, "opening/a-diverged-lane-is-reported-and-both-histories-kept"),
    (own.answers_ids_with_a_question, "opening/an-answer-to-ids-asks-for-none"),
    (own.stores_nothing, "durability/what-was-acked-is-there-after-a-kill"),
    (hub.acks_nothing, "entries/entries-are-acked-once-durable"),
    (hub.acks_whatever_it_receives, "entries/an-entry-waits-for-those-it-names"),
    (own.acks_the_entries_of_readers, "entries/an-entry-of-a-reader-is-not-acked"),
    (own.names_no_missing_entries, "entries/an-entry-waits-for-those-it-names"),
    (own.bounds_no_pending_entries, "entries/pending-entries-are-bounded"),
    (hub.offers_nothing_to_other_links, "entries/entries-are-offered-to-all-other-links"),
    (hub.sends_entries_back_to_their_sender, "entries/entries-are-offered-to-all-other-links"),
    (
        hub.goes_on_with_a_conversation_that_was_closed,
        "entries/a-conversation-that-was-closed-is-not-offered",
    ),
    (own.has_no_quotas, "quotas/a-key-revokes-another-a-few-times-only"),
    (own.checks_no_membership_at_delivery, "access/a-revoked-link-is-closed"),
    (own.says_that_a_conversation_is_not_yours, "access/calls-of-a-stranger-show-nothing"),
    (own.shows_a_stranger_what_is_held, "access/a-push-shows-a-stranger-nothing"),
    (hub.lets_everyone_read, "access/messages-of-a-stranger-show-nothing"),
    (own.lets_any_member_delete, "access/the-log-says-who-reads-and-who-writes"),
    (own.lets_any_member_write_blobs, "blobs/a-reader-writes-no-blob"),
    (own.lists_conversations_of_others, "access/a-follower-is-listed-its-conversations"),
    (own.checks_the_reader_of_a_blob_once, "access/a-revoked-reader-of-a-blob"),
    (own.says_which_mailboxes_are_known, "mailboxes/a-proof-is-answered-alike-in-any-mailbox"),
    (own.forgets_deletions, "deletion/a-deleted-conversation-is-gone-for-anyone"),
    (own.calls_pending_entries_of_a_push_durable, "calls/a-push-keeps-nothing-pending"),
    (own.ends_a_push_for_one_entry, "calls/each-outcome-is-durable-or-a-fault"),
    (own.warns_of_nothing, "calls/entries-without-effect-are-durable-with-a-warning"),
    (own.calls_refused_entries_durable, "entries/an-entry-of-a-reader-is-not-acked"),
    (own.calls_pending_entries_unknown, "entries/an-entry-waits-for-those-it-names"),
    (own.names_no_absent_ids, "calls/fetch-returns-ids-and-ranges"),
    (own.hints_at_the_genesis, "watching/a-watch-sends-the-log-then-new-entries"),
    (own.names_no_open_request, "watching/an-answer-is-named-before-the-hint"),
    (own.names_no_answer, "watching/a-refusal-is-named-without-a-seal"),
    (own.goes_on_behind_any_cursor, "watching/a-cursor-of-another-history-is-refused"),
    (own.sends_no_beats, "watching/a-watch-has-beats"),
    (
        hub.streams_drafts_to_links_that_did_not_open,
        "drafting/drafts-reach-the-readers-in-order",
    ),
    (hub.streams_no_drafts, "drafting/drafts-reach-the-readers-in-order"),
    (own.relays_unsigned_drafts, "drafting/wrong-drafts-are-dropped"),
    (link.accepts_drafts_with_gaps, "drafting/wrong-drafts-are-dropped"),
    (own.keeps_no_running_draft, "drafting/a-late-reader-gets-the-running-draft"),
    (own.writes_a_blob_at_any_offset, "blobs/an-offset-must-be-the-committed-size"),
    (own.keeps_a_blob_of_another_digest, "blobs/bytes-of-another-digest-are-dropped"),
    (hints.sends_heads_through_doubles, "opening/another-digest-is-answered-with-heads"),
    (hints.reads_epochs_of_32_bits, "calls/fetch-returns-ids-and-ranges"),
    (hints.streams_runs_through_doubles, "drafting/a-late-reader-gets-the-running-draft"),
    (hints.fetches_uncovered_entries, "calls/what-is-not-covered-is-absent"),
    (hints.forgets_the_basis_in_the_lamport, "hints/the-lamport-is-behind-the-basis"),
    (hints.hints_at_the_oldest_branch, "hints/the-tip-is-the-newest-branch"),
    (hints.hints_membership_heads_descending, "hints/membership-heads-ascend"),
    (hints.hints_uncovered_own_heads, "hints/own-heads-are-covered"),
    (hints.names_requests_of_no_host, "hints/a-request-of-no-host-is-not-open"),
    (hints.names_second_answers, "hints/a-second-answer-is-not-named"),
    (hints.names_answers_to_void_seals, "hints/an-answer-to-a-void-seal-is-not-named"),
    (hints.sends_drafts_to_all_watches, "drafting/a-watch-without-drafts-gets-none"),
    (hints.bounds_no_links_of_a_key, "quotas/a-key-has-a-bounded-number-of-links"),
    (entries.drops_entries_of_the_future, "entries/create-times-decide-nothing"),
    (
        entries.acks_what_other_links_sent,
        "entries/pending-entries-are-offered-behind-those-they-name",
    ),
    (entries.answers_a_pending_entry_once, "entries/each-link-that-sends-a-pending-entry"),
    (entries.knows_another_kind_10, "entries/unknown-kinds-and-fields-pass-unchanged"),
    (
        entries.keeps_the_first_of_two_at_a_position,
        "opening/a-diverged-lane-is-reported-and-both-histories-kept",
    ),
    (entries.drops_unknown_roles, "entries/unknown-numbers-pass-unchanged"),
    (entries.keeps_pending_entries_of_ended_links, "entries/pending-entries-end-with-their-link"),
    (entries.charges_all_links_for_pending_entries, "entries/pending-entries-are-bounded"),
    (entries.judges_a_message_by_its_parts, "covered/what-a-long-message-covers-at-its-end"),
    (entries.judges_a_push_by_its_parts, "covered/what-a-long-message-covers-at-its-end"),
    (entries.offers_new_entries_alone, "covered/what-a-cut-left-out"),
    (entries.offers_what_grants_let_in_alone, "covered/what-comes-back-with-the-end-of-a-cut"),
    (entries.offers_a_grant_behind_its_entries, "covered/what-a-grant-lets-in"),
    (entries.fills_no_body, "entries/a-body-that-comes-later-is-kept"),
    (entries.fetches_one_of_two_at_a_position, "calls/a-range-of-a-forked-lane"),
    (entries.calls_uncovered_entries_durable, "calls/what-is-not-covered-is-absent"),
    (entries.compares_an_open_conversation_no_more, "opening/an-open-conversation-is-compared"),
    (entries.says_nothing_to_do_next, "entries/faults-have-the-form-of-the-chapter"),
    (entries.calls_nothing_retryable, "entries/faults-have-the-form-of-the-chapter"),
    (entries.empties_a_mailbox_opened_again, "mailboxes/a-mailbox-that-is-opened-again"),
    (entries.lets_any_member_remove_blobs, "blobs/a-blob-is-removed-by-owners-and-hosts-alone"),
    (entries.removes_blobs_that_last, "blobs/a-blob-is-removed-by-owners-and-hosts-alone"),
    (entries.shows_the_text_of_its_decoder, "calls/errors-show-nothing-of-a-decoder"),
    (blobs.takes_times_that_have_passed, "expiry/a-time-that-has-passed"),
    (blobs.stores_a_digest_once, "expiry/one-digest-is-written-both-ways"),
    (blobs.keeps_blobs_that_have_expired, "expiry/a-blob-is-served-until-its-time"),
    (blobs.deletes_blobs_early, "expiry/a-blob-is-served-until-its-time"),
    (blobs.heeds_the_first_time_alone, "expiry/a-later-time-counts"),
    (blobs.heeds_the_last_time, "expiry/a-later-time-counts"),
    (blobs.loses_times_when_it_starts, "expiry/a-time-to-expire-at-outlasts-a-kill"),
]


async def problems_of(folder: Path, *names: str) -> list[str]:
    """Run the cases of these names against a hub in this process; return their problems."""
    config = HubConfig(data_dir=folder, listen="127.0.0.1:0")
    server = await start(config)

    async def restart() -> None:
        nonlocal server
        await server.stop()
        server = await start(config.model_copy(update={"listen": server.address}))

    scale = Scale(beat=limits.HEARTBEAT_S, blob_lifetime=1.0, blob_deletion=1.0)
    run = HubRun(server.address, restart, wait_s=5.0, scale=scale)
    chosen = [check for check in TABLE if check.name.startswith(names)]
    assert len(chosen) == len(names), "each name is the beginning of one case"
    try:
        outcomes = await judge_hub(run, chosen)
    finally:
        await server.stop()
    return [problem for outcome in failed(outcomes) for problem in outcome.problems]


@pytest.mark.parametrize(("fault", "name"), PLANTED, ids=lambda one: getattr(one, "__name__", ""))
async def test_the_kit_finds(
    fault: Callable[[], own.Patch], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "CASE_SECONDS_MAX", CASE_SECONDS_MAX)
    with fault():
        found = await problems_of(tmp_path / "hub", name)
    assert found
    assert not any(own_fault in found[0] for own_fault in OWN_FAULTS), found


async def test_the_same_cases_pass_without_a_fault(tmp_path: Path) -> None:
    assert await problems_of(tmp_path / "hub", *{name for _, name in PLANTED}) == []


def test_there_are_many_faults_each_planted_once() -> None:
    faults = [fault.__name__ for fault, _ in PLANTED]
    assert len(faults) == len(set(faults)) >= 40
