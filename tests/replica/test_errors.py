"""The base of every error: its words for people, and its data for programs."""

import pytest

from replica.errors import (
    AntiphonError,
    EntryRefused,
    HostError,
    RequestRefused,
    StoreError,
    Unavailable,
    with_step,
)
from replica.refusals import QuotaExceeded

BRANCHES = (EntryRefused, RequestRefused, Unavailable, StoreError, HostError)


def test_an_error_without_detail_says_what_its_class_means() -> None:
    assert EntryRefused().detail == "The entry breaks a rule of the protocol."
    assert str(EntryRefused()) == EntryRefused().detail


def test_a_class_of_several_lines_says_its_first() -> None:
    class LongWinded(AntiphonError):
        """One line.

        And more.
        """

    assert LongWinded().detail == "One line."


def test_detail_missing_and_delay_are_kept() -> None:
    error = AntiphonError("broken", missing=iter([b"a", b"b"]), retry_after_s=2.5)
    assert (error.detail, error.missing, error.retry_after_s) == ("broken", (b"a", b"b"), 2.5)


def test_without_recovery_data_there_is_none() -> None:
    assert (AntiphonError().missing, AntiphonError().retry_after_s) == ((), None)


@pytest.mark.parametrize("branch", BRANCHES)
def test_each_branch_has_a_reason_of_its_own(branch: type[AntiphonError]) -> None:
    others = {kind.reason for kind in (AntiphonError, *BRANCHES) if kind is not branch}
    assert branch.reason not in others


def test_only_what_is_unavailable_may_succeed_later() -> None:
    assert [kind for kind in BRANCHES if kind.retryable] == [Unavailable]
    assert not issubclass(QuotaExceeded, EntryRefused), "another hub may take the entry"


def test_a_next_step_of_one_error_leaves_its_class_as_it_is() -> None:
    error = with_step(QuotaExceeded("full"), "Delete something.")
    assert (error.next_step, error.detail) == ("Delete something.", "full")
    assert QuotaExceeded("full").next_step == QuotaExceeded.next_step != error.next_step
