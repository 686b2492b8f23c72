"""Tests that share something costly run in one process."""

import pytest


@pytest.fixture(scope="module")
def made_once() -> object:
    """Stand for what takes long to make."""
    return object()


@pytest.mark.xdist_group("by mark")
def test_a_mark_names_the_group(request: pytest.FixtureRequest) -> None:
    assert group_of(request) == "by mark"


def test_the_tests_that_share_a_fixture_of_their_file_are_a_group(
    request: pytest.FixtureRequest, made_once: object
) -> None:
    assert group_of(request) == "tests/test_groups.py"


def test_other_tests_have_no_group(request: pytest.FixtureRequest) -> None:
    assert group_of(request) is None


def group_of(request: pytest.FixtureRequest) -> str | None:
    """Return the group that pytest-xdist has read where it distributes tests, else the mark's."""
    if request.config.getoption("loadgroup", False):
        return request.node.nodeid.partition("@")[2] or None
    mark = request.node.get_closest_marker("xdist_group")
    return mark.args[0] if mark is not None else None
