"""Rates that are true: over the last seconds, and anew after a pause."""

from antiphon.cli.views.pace import Rate


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    for tenth in range(100):
        rate.feed(tenth / 10, tenth)
    assert rate.words() == "99 tokens · 10.0 tok/s"


def test_tokens_that_come_at_once_after_a_pause_are_no_speed() -> None:
    rate = Rate()
    for tenth in range(20):
        rate.feed(tenth / 10, tenth)
    rate.feed(12.0, 3_000)
    assert rate.words() == "3000 tokens"
    rate.feed(13.0, 3_010)
    assert rate.words() == "3010 tokens · 10.0 tok/s"


def test_one_token_has_no_rate() -> None:
    rate = Rate()
    rate.feed(0.0, 1)
    assert rate.words() == "1 token"
