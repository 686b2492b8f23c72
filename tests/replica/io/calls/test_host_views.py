"""What a host answers about itself, as values."""

import pytest

from antiphon.v1 import host_pb2 as pb
from replica.io.calls.host_views import pages_from_pb, sample_from_pb
from replica.refusals import FrameMalformed


def answer(**sample) -> pb.StatsResponse:
    metric = pb.Metric(name="antiphon_host_x", samples=[pb.MetricSample(**sample)])
    return pb.StatsResponse(host_key=b"h" * 32, metrics=[metric])


def test_a_number_and_a_distribution_are_told_apart():
    number = sample_from_pb(answer(label="a", value=3))
    assert (number.number("x", "a"), number.distribution("x")) == (3.0, None)
    times = sample_from_pb(answer(value=1.5, bounds=[1.0], counts=[2, 1])).distribution("x")
    assert times is not None
    assert (times.total, times.sum) == (3, 1.5)
    assert number.number("y") is None


@pytest.mark.parametrize(
    "buckets",
    [{"bounds": [1.0], "counts": [1]}, {"bounds": [2.0, 1.0], "counts": [1, 1, 1]},
     {"bounds": [float("nan"), 1.0], "counts": [1, 1, 1]}],
)  # fmt: skip
def test_buckets_that_do_not_fit_together_are_refused(buckets: dict):
    with pytest.raises(FrameMalformed):
        sample_from_pb(answer(**buckets))


def test_the_tokens_of_a_context_are_those_of_its_entries():
    one = pb.EntryPages(entry=b"e" * 32, cached_tokens=3, stored_tokens=2, absent_tokens=1)
    pages = pages_from_pb(pb.PagesResponse(entries=[one, one], stored_tokens=5))
    assert (pages.tokens, pages.stored_tokens, pages.seal) == (12, 5, None)
