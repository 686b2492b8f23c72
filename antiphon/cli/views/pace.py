"""The pace of an answer: tokens and their rate, and the progress of its prompt. Pure."""

from collections import deque

from rich.text import Text

from antiphon.cli.views.rows import rate_words
from replica.conversation import Progress

BAR_CELLS = 32
RATE_AFTER_S = 0.5
"""Shortest time over which a rate is shown."""
RATE_OVER_S = 5.0
"""Time over which a rate is taken."""
PAUSE_S = 2.0
"""A pause after which a rate is taken anew: what was computed meanwhile comes at once."""


class Rate:
    """Tokens so far, and how fast they come now."""

    def __init__(self) -> None:
        """Begin without a token."""
        self.tokens = 0
        self._seen: deque[tuple[float, int]] = deque()

    def feed(self, now_s: float, tokens: int) -> None:
        """Note that `tokens` have arrived in all."""
        if self._seen and (now_s - self._seen[-1][0] > PAUSE_S or tokens < self.tokens):
            self._seen.clear()
        self.tokens = tokens
        self._seen.append((now_s, tokens))
        while now_s - self._seen[0][0] > RATE_OVER_S:
            self._seen.popleft()

    def per_s(self) -> float | None:
        """Return tokens per second; None while too few have come."""
        if not self._seen:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended - began >= RATE_AFTER_S else None

    def words(self) -> str:
        """Return tokens and rate as text."""
        rate, count = self.per_s(), f"{self.tokens} token{'s' * (self.tokens != 1)}"
        return count if rate is None else f"{count} · {rate_words(rate)}"


def bar(progress: Progress, *, is_ascii: bool) -> Text:
    """Draw the prompt as a bar: cached, restored, computed and remaining tokens."""
    full, shade, blank = ("#", "=", "-") if is_ascii else ("█", "▓", "░")
    total = max(1, progress.prompt_tokens)
    cached = progress.cached_tokens * BAR_CELLS // total
    restored = progress.restored_tokens * BAR_CELLS // total
    done = progress.cached_tokens + progress.restored_tokens + progress.prefilled_tokens
    computed = max(0, min(done, total) * BAR_CELLS // total - cached - restored)
    left = BAR_CELLS - cached - restored - computed
    return Text.assemble(
        ("prefill ", "dim"),
        (full * cached, "green"),
        (shade * restored, "cyan"),
        (full * computed, "yellow"),
        (blank * left, "dim"),
        (f" {min(done, total)}/{total}", ""),
        ("  cached ", "dim"),
        (str(progress.cached_tokens), "green"),
        ("  restored ", "dim"),
        (str(progress.restored_tokens), "cyan"),
        ("  computed ", "dim"),
        (str(progress.prefilled_tokens), "yellow"),
    )
