"""What every test leaves behind as it found it."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what commands run in this process say of logging: others look at what is logged."""
    yield
    structlog.reset_defaults()
