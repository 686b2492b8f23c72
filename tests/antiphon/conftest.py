"""What all tests of the command and the library need."""

import pytest

from replica.io.conversations import invitations


@pytest.fixture(autouse=True)
def newcomers_are_answered_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for newcomers twenty times as often: each that joins would wait for a look."""
    monkeypatch.setattr(invitations, "POLL_S", 0.1)
