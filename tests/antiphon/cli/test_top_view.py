"""The view of `antiphon top` at several widths, from samples."""

import json
from dataclasses import replace

import pytest
from rich.cells import cell_len

from antiphon.cli.views.top_view import Rates, Timed, hit_rate, lines, rates, record
from replica.ids import PublicKey
from replica.io.calls.host_views import HostSample, RunningRequest
from replica.measures import Histogram

OWN = PublicKey(b"o" * 32)
RUN = RunningRequest(
    conversation=b"\xaa" * 32, request=b"\xbb" * 32, author=OWN, owner=OWN,
    prompt_tokens=2048, found_tokens=512, computed_tokens=512, output_tokens=0,
    age_s=3.2, first_token_s=0.0,
)  # fmt: skip
LATER = replace(
    RUN, author=b"\xcc" * 32, computed_tokens=1536, output_tokens=41, age_s=3.0, first_token_s=1.0
)


def sample(*requests: RunningRequest, is_operator: bool = True, output: float = 100) -> HostSample:
    first = Histogram.of((0.1, 1.0), (3, 1, 0), 0.9)
    metrics: dict = {
        "requests_running": {"": len(requests)},
        "requests_waiting": {"": 1},
        "requests_finished_total": {"stop": 40, "length": 1},
        "requests_refused_total": {"HOST_BUSY": 2},
        "batch_sequences": {"": 2},
        "first_token_seconds": {"": first},
        "tokens_total": {"cached": 60, "restored": 20, "prefilled": 20, "output": output},
    }
    if is_operator:
        metrics["tier_bytes"] = {"memory": 812_000_000, "disk": 1_200_000}
        metrics["tier_limit_bytes"] = {"memory": 2 << 30, "disk": 8 << 30}
        metrics["tier_tokens"] = {"memory": 98_304}
        metrics["tier_evictions_total"] = {"memory": 12, "disk": 0}
        metrics["restores_total"] = {"": 5}
        metrics["restore_fallbacks_total"] = {"": 1}
    named = {f"antiphon_host_{name}": values for name, values in metrics.items()}
    return HostSample(PublicKey(b"h" * 32), is_operator, named, requests)


def view(now: HostSample, width: int = 80, height: int = 24) -> list[str]:
    shown = lines(Timed(now, 1.0), None, OWN, address="127.0.0.1:1", width=width, height=height)
    return [line.plain for line in shown]


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_every_line_fits_its_terminal(width: int) -> None:
    shown = view(sample(RUN, LATER), width)
    assert max(map(cell_len, shown)) <= width
    if width >= 60:
        assert sum("aaaaaaaaaaaa" in line for line in shown) == 2
    assert any("bbbbbbbbbbbb" in line for line in shown) == (width == 120)


def test_a_view_has_queue_batch_times_tiers_and_requests() -> None:
    text = "\n".join(view(sample(RUN, LATER)))
    for words in (
        "2 running  1 waiting  41 answered  2 refused", "2 in a step", "80% found",
        "812.0 MB of 2.1 GB  98,304 tokens  12 evicted", "5 restored  1 refused",
    ):  # fmt: skip
        assert words in text, text
    first, second = view(sample(RUN, LATER))[-2:]
    assert first.split()[:2] == ["aaaaaaaaaaaa", "you"]
    assert "1024/2048" in first
    assert "####" in first
    assert second.split()[1] == "cccccc"
    assert second.split()[-4:] == ["41", "20.0", "3", "s"]


@pytest.mark.parametrize(
    ("failure", "shown"),
    [("STORE_FULL", "STORE_FULL"), ("A\x1b[31M", "?"), ("STORE FULL", "?"), ("Ä", "?")],
)
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_why_a_request_does_not_go_on_is_shown_for_its_progress(
    failure: str, shown: str, width: int
) -> None:
    (row,) = (line for line in view(sample(replace(RUN, failure=failure)), width) if "you" in line)
    assert "\x1b" not in row
    assert max(map(cell_len, [row])) <= width
    if width > 20:
        assert row.split()[row.split().index("you") + 1] == shown
    assert "1024/2048" not in row


def test_more_requests_than_lines_are_counted() -> None:
    shown = view(sample(*[RUN] * 40), height=16)
    assert len(shown) <= 16
    assert shown[-1].startswith("and ")
    assert int(shown[-1].split()[1]) + sum("1024/2048" in line for line in shown) == 40


def test_others_than_operators_are_told_why_they_see_no_request() -> None:
    hidden = replace(sample(RUN, is_operator=False), requests=())
    shown = view(hidden)
    assert "no running request is yours; the host's operators see all" in shown
    assert not any(line.startswith("memory") for line in shown)
    assert "nothing is being answered" in view(sample())


def test_rates_come_from_two_samples_and_of_one_from_its_answers() -> None:
    before, now = Timed(sample(output=100), 10.0), Timed(sample(output=150), 12.0)
    assert rates(now, before) == Rates(0.0, 25.0)
    assert rates(Timed(sample(LATER), 1.0), None) == Rates(None, 20.0)
    # The host was started again: its counts began anew.
    assert rates(Timed(sample(output=5), 12.0), before).output is None


def test_the_share_found_is_unknown_before_the_first_prompt() -> None:
    assert hit_rate(sample()) == pytest.approx(0.8)
    empty = replace(sample(), metrics={})
    assert hit_rate(empty) is None
    assert view(empty)


def test_what_a_host_names_can_not_control_the_terminal() -> None:
    foul = {"\x1b[2J": 1.0, "memory": 2.0}
    metrics = {"antiphon_host_tier_bytes": foul}
    assert "\x1b" not in "".join(view(replace(sample(), metrics=metrics)))


def test_a_record_has_numbers_for_programs() -> None:
    made = record(Timed(sample(RUN, LATER), 1.0), None, address="127.0.0.1:1")
    assert json.loads(json.dumps(made)) == made
    assert made["metrics"]["antiphon_host_requests_waiting"] == 1
    assert made["metrics"]["antiphon_host_tokens_total"]["cached"] == 60
    assert made["metrics"]["antiphon_host_first_token_seconds"]["count"] == 4
    assert [one["first_token_s"] for one in made["requests"]] == [None, 1.0]
    assert made["hit_rate"] == 0.8
    assert [one["failure"] for one in made["requests"]] == [None, None]


def test_what_a_host_leaves_out_is_said_with_the_reason() -> None:
    assert not any("listed" in line for line in view(sample()))
    metrics = sample().metrics | {
        "antiphon_host_conversations": {"open": 256, "not_asked": 4_200, "creator": 3}
    }
    shown = view(replace(sample(), metrics=metrics))
    assert "listed   256 open  4,200 until asked  3 of other owners" in shown


def test_what_the_store_of_a_host_does_not_take_is_said_though_nothing_runs() -> None:
    assert not any(line.startswith("store") for line in view(sample()))
    counts = {"STORE_FULL": 3.0, "STORE_CORRUPT": 0.0, "\x1b[2J": 1.0}
    metrics = sample().metrics | {"antiphon_host_conversations_unstored": counts}
    (line,) = [li for li in view(replace(sample(), metrics=metrics)) if li.startswith("store")]
    assert line == "store    1 conversations not stored: ?  3 conversations not stored: STORE_FULL"
