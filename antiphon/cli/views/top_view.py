"""The view of `antiphon top`: one sample of a host as lines, or as a JSON object.

    host 3f2a91c0ffee  127.0.0.1:4411  operator
    requests  2 running  1 waiting  41 answered  3 refused
    ...
    conversation  whose       prompt                out  tok/s    age

Only numbers and hex digits of a host are shown, whatever it answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from antiphon.cli.views.names import KEY_DIGITS
from antiphon.cli.views.output import harmless
from antiphon.cli.views.rows import wrapped
from replica.ids import PublicKey, short
from replica.io import HostSample, RunningRequest
from replica.measures import Histogram

NARROW_CELLS = 72
WIDE_CELLS = 110
SOURCES = ("cached", "shared", "restored", "prefilled")
"""Sources of the tokens of prompts, as their counter names them."""
LEFT_OUT = {
    "not_asked": "until asked",
    "no_room": "wait for room",
    "creator": "of other owners",
}
"""States of listed conversations that are not open, as their gauge names them."""
_UNITS = ("B", "kB", "MB", "GB", "TB")
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Timed:
    """A sample, with the time in seconds at which it came."""

    sample: HostSample
    at_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second: computed from prompts, and written."""

    prompt: float | None
    output: float | None


def rates(now: Timed, before: Timed | None) -> Rates:
    """Return the rates between two samples; of one alone, that of the running answers.

    A count that fell shows that the host was started again.
    """
    if before is None or now.at_s <= before.at_s:
        return Rates(None, sum(one.tokens_per_s for one in now.sample.requests))
    seconds = now.at_s - before.at_s

    def rate(source: str) -> float | None:
        new, old = (one.sample.number("tokens_total", source) for one in (now, before))
        return (new - old) / seconds if new is not None and old is not None and new >= old else None

    return Rates(rate("prefilled"), rate("output"))


def hit_rate(sample: HostSample) -> float | None:
    """Return the share of prompts' tokens that were not computed; None before the first."""
    tokens = {source: sample.number("tokens_total", source) or 0.0 for source in SOURCES}
    total = sum(tokens.values())
    return 1 - tokens["prefilled"] / total if total else None


# --- lines ------------------------------------------------------------------------------


def lines(
    now: Timed, before: Timed | None, own: PublicKey, *, address: str, width: int, height: int
) -> list[Text]:
    """Return the view in at most `height` lines of at most `width` cells."""
    sample = now.sample
    head = [
        _line("host", f"{short(sample.host)}  {address}", "operator" if sample.is_operator else ""),
        _requests(sample),
        *_conversations(sample),
        *_unstored(sample),
        _batch(sample, rates(now, before)),
        _times(sample),
        _prompts(sample),
        *_tiers(sample),
        Text(""),
    ]
    room = max(0, height - len(head) - 1)
    rows = [_row(one, own, width) for one in sample.requests]
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    body = [Text(_columns(width), style="dim"), *shown] if rows else [_nothing(sample)]
    if len(shown) < len(rows):
        body.append(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    return [_cut(line, width) for line in (*head, *body)][:height]


def _line(name: str, *pieces: str | Text) -> Text:
    line = Text(f"{name:<9}", style="dim")
    return line.append_text(Text("  ").join(_plain(piece) for piece in pieces if piece))


def _plain(piece: str | Text) -> Text:
    return piece if isinstance(piece, Text) else Text(piece, style="not dim")


def _cut(line: Text, width: int) -> Text:
    line.truncate(max(1, width), overflow="ellipsis")
    return line


def _count(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None else _UNKNOWN


def _seconds(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _bytes(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    power = 0
    while value >= 1000 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {_UNITS[power]}" if power > 1 else f"{value:.0f} {_UNITS[power]}"


def _total(sample: HostSample, name: str) -> float:
    values = sample.metrics.get(f"antiphon_host_{name}", {}).values()
    return sum(value for value in values if isinstance(value, int | float))


def _requests(sample: HostSample) -> Text:
    return _line(
        "requests",
        f"{_count(sample.number('requests_running'))} running",
        f"{_count(sample.number('requests_waiting'))} waiting",
        f"{_count(_total(sample, 'requests_finished_total'))} answered",
        f"{_count(_total(sample, 'requests_refused_total'))} refused",
    )


def _conversations(sample: HostSample) -> list[Text]:
    """Return a line about the conversations that the host leaves out, if there are any."""

    def count(state: str) -> float:
        return sample.number("conversations", state) or 0.0

    if not any(map(count, LEFT_OUT)):
        return []
    pieces = [f"{_count(count('open'))} open"]
    pieces += [f"{_count(count(s))} {words}" for s, words in LEFT_OUT.items() if count(s)]
    return [_line("listed", *pieces)]


def _unstored(sample: HostSample) -> list[Text]:
    """Return a line about the conversations that the host's store does not take, if there are any.

    Requests in them may be known to the host neither as running nor as waiting.
    """
    counts = sample.metrics.get("antiphon_host_conversations_unstored", {})
    pieces = [
        f"{_count(count)} conversations not stored: {_reason(reason)}"
        for reason, count in sorted(counts.items())
        if isinstance(count, int | float) and count
    ]
    return [_line("store", *pieces)] if pieces else []


def _batch(sample: HostSample, found: Rates) -> Text:
    return _line(
        "batch",
        f"{_count(sample.number('batch_sequences'))} in a step",
        f"step {_seconds(_quantile(sample.distribution('step_seconds'), 0.5))}",
        f"{_count(found.output)} tok/s out",
        f"{_count(found.prompt)} tok/s in",
    )


def _times(sample: HostSample) -> Text:
    first = sample.distribution("first_token_seconds")
    later = sample.distribution("output_token_seconds")
    return _line(
        "first",
        f"median {_seconds(_quantile(first, 0.5))}",
        f"95 % {_seconds(_quantile(first, 0.95))}",
        f"later tokens {_seconds(_quantile(later, 0.5))}",
    )


def _quantile(found: Histogram | None, share: float) -> float | None:
    return found.quantile(share) if found is not None else None


def _prompts(sample: HostSample) -> Text:
    share = hit_rate(sample)
    pieces = [f"{share:.0%} found" if share is not None else "none yet"]
    for source in SOURCES:
        number = sample.number("tokens_total", source)
        if number is not None:
            pieces.append(f"{_count(number)} {source}")
    return _line("prompts", *pieces)


def _tiers(sample: HostSample) -> list[Text]:
    """Return a line for each tier that the host shows to this key."""
    found = []
    for name in sorted(sample.metrics.get("antiphon_host_tier_bytes", {}), reverse=True):
        tokens = sample.number("tier_tokens", name)
        limit = _bytes(sample.number("tier_limit_bytes", name))
        pieces = [f"{_bytes(sample.number('tier_bytes', name))} of {limit}"]
        pieces += [f"{_count(tokens)} tokens"] if tokens is not None else []
        pieces += [f"{_count(sample.number('tier_evictions_total', name))} evicted"]
        found.append(_line(_word(name), *pieces))
    if found:
        found[-1].append(
            f"  {_count(sample.number('restores_total'))} restored"
            f"  {_count(sample.number('restore_fallbacks_total'))} refused",
            style="not dim",
        )
    return found


def _word(label: str) -> str:
    """Return a label of a host, if it is a plain word."""
    return label[:8] if label.isascii() and label.isalnum() else "?"


def _nothing(sample: HostSample) -> Text:
    hidden = sample.number("requests_running")
    if hidden:
        return Text("no running request is yours; the host's operators see all", style="dim")
    return Text("nothing is being answered", style="dim")


# --- requests ---------------------------------------------------------------------------


def _columns(width: int) -> str:
    return _cells(width, "conversation", "request", "whose", "prompt", "out", "tok/s", "age")


def _cells(width: int, talk: str, request: str, whose: str, *rest: str) -> str:
    prompt, out, rate, age = rest
    line = f"{talk:<13} "
    if width >= WIDE_CELLS:
        line += f"{request:<13} "
    line += f"{whose:<7} {prompt:<{_prompt_cells(width)}} {out:>6} "
    if width >= NARROW_CELLS:
        line += f"{rate:>6} "
    return line + f"{age:>6}"


def _prompt_cells(width: int) -> int:
    return 34 if width >= WIDE_CELLS else 26 if width >= NARROW_CELLS else 15


def _row(one: RunningRequest, own: PublicKey, width: int) -> Text:
    whose = "you" if one.author == own else one.author.hex()[:KEY_DIGITS]
    rate = f"{one.tokens_per_s:.1f}" if one.tokens_per_s else _UNKNOWN
    return Text(
        _cells(
            width, short(one.conversation), short(one.request), whose,
            _state(one, _prompt_cells(width)), str(one.output_tokens), rate,
            _age(one.age_s),
        )
    )  # fmt: skip


def _state(one: RunningRequest, cells: int) -> str:
    """Return the progress of a prompt, or why the request does not go on."""
    return _reason(one.failure)[:cells] if one.failure else _progress(one, cells)


def _reason(text: str) -> str:
    """Return a reason that a host gives, if it has the form of one."""
    letters = text.replace("_", "")
    return text if letters.isascii() and letters.isalpha() and letters.isupper() else "?"


def _progress(one: RunningRequest, cells: int) -> str:
    """Return the progress of a prompt as numbers, with a bar where there is room."""
    done = min(one.found_tokens + one.computed_tokens, one.prompt_tokens)
    numbers = f"{done}/{one.prompt_tokens}"
    bar = cells - len(numbers) - 1
    if bar < 8:
        return numbers
    full = bar * done // max(1, one.prompt_tokens)
    return f"{'#' * full}{'-' * (bar - full)} {numbers}"


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# --- JSON -------------------------------------------------------------------------------


def record(now: Timed, before: Timed | None, *, address: str) -> dict[str, Any]:
    """Return a sample as a JSON object."""
    sample, found = now.sample, rates(now, before)
    return {
        "host": sample.host.hex(),
        "address": address,
        "operator": sample.is_operator,
        "prompt_tokens_per_s": _rounded(found.prompt),
        "output_tokens_per_s": _rounded(found.output),
        "hit_rate": _rounded(hit_rate(sample)),
        "metrics": {name: _samples(values) for name, values in sample.metrics.items()},
        "requests": [_request_record(one) for one in sample.requests],
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None


def _samples(values: Any) -> Any:
    plain = {label: _plain_value(value) for label, value in values.items()}
    return plain[""] if set(plain) == {""} else plain


def _plain_value(value: Any) -> Any:
    if not isinstance(value, Histogram):
        return value
    return {
        "count": value.total,
        "sum": value.sum,
        "median": _rounded(value.quantile(0.5)),
        "p95": _rounded(value.quantile(0.95)),
    }


def _request_record(one: RunningRequest) -> dict[str, Any]:
    return {
        "conversation": one.conversation.hex(),
        "request": one.request.hex(),
        "author": one.author.hex(),
        "owner": one.owner.hex(),
        "prompt_tokens": one.prompt_tokens,
        "found_tokens": one.found_tokens,
        "computed_tokens": one.computed_tokens,
        "output_tokens": one.output_tokens,
        "age_s": one.age_s,
        "first_token_s": one.first_token_s or None,
        "tokens_per_s": _rounded(one.tokens_per_s or None),
        "failure": one.failure or None,
    }


def notice(words: Sequence[str], width: int) -> list[Text]:
    """Return the view of a host that is away."""
    pieces = (piece for line in words for piece in wrapped(harmless(line), width))
    return [Text(piece, style="yellow") for piece in pieces]
