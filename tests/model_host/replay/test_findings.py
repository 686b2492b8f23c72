"""The receipt sums up the findings in the order of the log."""

from model_host.replay.case import Collected
from model_host.replay.findings import receipt_of
from replica.conversation import NO_ENTRY, Cause, Finding, Judge, Outcome, Receipt, ReplayMode
from replica.ids import ConversationId, Digest, EntryId, PublicKey

A, B, C = (EntryId(letter * 32) for letter in (b"a", b"b", b"c"))
ANY = Digest(bytes(32))
EARLIER, LATER = (Judge(Digest(letter * 32), ANY) for letter in (b"e", b"l"))


def receipt(*found: tuple[EntryId, Outcome, Cause, int]) -> Receipt:
    findings = {
        answer: Finding(answer, answer, ANY, outcome, cause, index, checked_tokens=5)
        for answer, outcome, cause, index in found
    }
    order = tuple(answer for answer, *_ in found)
    collected = Collected(ConversationId(b"c" * 32), ANY, 9, (), order, 2, 1)
    return receipt_of(
        collected, findings, host=PublicKey(b"h" * 32), mode=ReplayMode.VERIFY,
        judge=Judge(ANY, ANY), further=[LATER, EARLIER], from_entry=NO_ENTRY, time_ms=7,
    )  # fmt: skip


def test_all_answers_accepted_are_an_accepted_conversation():
    made = receipt((A, Outcome.ACCEPTED, Cause.NONE, -1), (B, Outcome.ACCEPTED, Cause.NONE, -1))
    assert (made.outcome, made.accepted, made.tokens) == (Outcome.ACCEPTED, 2, 10)
    assert (made.first, made.first_cause, made.refused, made.open) == (NO_ENTRY, Cause.NONE, 2, 1)


def test_a_difference_outweighs_what_is_undecided_and_the_first_one_is_named():
    made = receipt(
        (C, Outcome.UNDECIDED, Cause.PART_MISSING, -1),
        (B, Outcome.DIFFERS, Cause.TOKEN, 4),
        (A, Outcome.DIFFERS, Cause.TEXT, -1),
    )
    assert (made.outcome, made.differing, made.undecided) == (Outcome.DIFFERS, 2, 1)
    assert (made.first, made.first_cause, made.first_token) == (B, Cause.TOKEN, 4)


def test_an_undecided_answer_leaves_the_conversation_undecided():
    made = receipt(
        (A, Outcome.ACCEPTED, Cause.NONE, -1), (B, Outcome.UNDECIDED, Cause.PART_MISSING, -1)
    )
    assert (made.outcome, made.first) == (Outcome.UNDECIDED, B)


def test_a_conversation_without_answers_is_accepted():
    assert receipt().outcome == Outcome.ACCEPTED


def test_the_further_profiles_that_judged_are_stated_in_ascending_order():
    made = receipt()
    assert (made.profile, made.numerics_class) == (ANY, ANY)
    assert made.further == (EARLIER, LATER)
