"""What the library logs: nothing on a program's stdout, and what the program configures."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from replica.io.process.logger import get_logger

log = get_logger()


def fail() -> None:
    raise ValueError("bad\nvalue")


def test_events_go_to_the_standard_logger(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log.warning("connection broken", detail="by\x1b[31m them", count=2)
    log.info("not shown, as the level says")
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("antiphon", "WARNING", "connection broken detail=by\\x1b[31m them count=2")
    ]
    assert capsys.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_a_text_with_a_percent_sign_is_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    log.error("50 % of %s", left="%d")
    assert caplog.messages == ["50 % of %s left=%d"]


def test_an_exception_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        fail()
    except ValueError:
        log.exception("a listener failed", kind="Welcomed")
    (record,) = caplog.records
    assert record.getMessage() == "a listener failed kind=Welcomed"
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


def test_nothing_is_shown_without_a_handler_of_the_program() -> None:
    handlers = logging.getLogger("antiphon").handlers
    assert [type(one) for one in handlers] == [logging.NullHandler]


def test_what_the_program_configures_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with capture_logs() as events:
        log.warning("could not read it", reason="STORE_CORRUPT")
    assert events == [
        {"event": "could not read it", "reason": "STORE_CORRUPT", "log_level": "warning"}
    ]
    assert not caplog.records
