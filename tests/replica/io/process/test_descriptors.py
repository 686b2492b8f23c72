"""A daemon raises its limit of open files, and accepts no more calls than these allow."""

import resource
import subprocess
import sys

import pytest

from replica.io.process.descriptors import calls_allowed, connections_allowed
from replica.limits import STREAMS_MAX


@pytest.mark.parametrize(
    ("descriptors", "calls"),
    [(1, 1), (1_024, 256), (4 * STREAMS_MAX, STREAMS_MAX), (10**6, STREAMS_MAX)],
)
def test_a_quarter_of_the_descriptors_is_for_streams(descriptors: int, calls: int) -> None:
    assert calls_allowed(descriptors) == calls


def test_half_of_the_descriptors_is_for_the_connections_of_all_addresses() -> None:
    assert connections_allowed(1_024, 1) == 512
    assert connections_allowed(1_024, 2) == 256
    assert connections_allowed(1, 2) == 1


def test_the_limit_is_raised_as_far_as_the_system_allows() -> None:
    """In a process of its own: a hard limit can't be raised again."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 900));"
        "from replica.io.process.descriptors import allow_descriptors as a;"
        "print(a(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0], a(5000), a(10))"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 900
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["500", "500", "900", "900"]
