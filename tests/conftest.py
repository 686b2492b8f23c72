"""What every test leaves behind as it found it."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# A deadline measures the machine, not the code: beside other work it is missed now and then.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what commands run in this process say of logging: others look at what is logged."""
    yield
    structlog.reset_defaults()
