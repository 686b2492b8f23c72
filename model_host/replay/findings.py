"""The receipt that sums up the findings of a replay (spec/07-host §10). Pure."""

from collections.abc import Iterable, Mapping

from model_host.replay.case import Collected
from replica.conversation import (
    NO_ENTRY,
    NO_TOKEN,
    Cause,
    Finding,
    Judge,
    Outcome,
    Receipt,
    ReplayMode,
    summary_of,
)
from replica.ids import EntryId, PublicKey


def receipt_of(
    collected: Collected,
    findings: Mapping[EntryId, Finding],
    *,
    host: PublicKey,
    mode: ReplayMode,
    judge: Judge,
    further: Iterable[Judge],
    from_entry: EntryId,
    time_ms: int,
) -> Receipt:
    """Return the receipt of a replay, not yet signed; there is a finding for each answer.

    `judge` is the profile that judged the answers of none of `further`.
    """
    ordered = [findings[answer] for answer in collected.order]
    summary = summary_of(ordered)
    worst = summary.outcome
    first = next((f for f in ordered if worst != Outcome.ACCEPTED and f.outcome == worst), None)
    return Receipt(
        host=host,
        conversation=collected.conversation,
        log_digest=collected.log_digest,
        entries=collected.entries,
        mode=mode,
        outcome=summary.outcome,
        accepted=summary.accepted,
        differing=summary.differing,
        undecided=summary.undecided,
        tokens=summary.tokens,
        profile=judge.profile,
        numerics_class=judge.numerics_class,
        findings_digest=summary.findings_digest,
        time_ms=time_ms,
        refused=collected.refused,
        open=collected.open,
        from_entry=from_entry,
        first=first.answer if first is not None else NO_ENTRY,
        first_cause=first.cause if first is not None else Cause.NONE,
        first_token=first.token_index if first is not None else NO_TOKEN,
        further=tuple(sorted(further, key=lambda each: each.profile)),
    )
