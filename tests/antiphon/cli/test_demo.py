"""The complete demo: real model, real crashes, and no remaining files or processes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.demo import MODEL, PAGE_TOKENS
from model_host.io import fetch
from tests.antiphon.cli.processes import ROOT, is_alive

PLAY_TIMEOUT_S = 220
"""It takes 35 s on an idle machine of two cores."""


@pytest.fixture
def fetched_model() -> None:
    """The demo would fetch a missing model; a test uses the local one."""
    try:
        fetch.resolve(MODEL)
    except fetch.ModelMissing as missing:
        pytest.fail(f"{missing.detail}: run `make model`, or set ANTIPHON_CACHE_DIR.")


def play(folder: Path, **changed: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo in a separate process, with `folder` for temporary files."""
    variables = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), **changed}
    argv = [sys.executable, "-m", "antiphon.cli.demo", "--json"]
    return subprocess.run(
        argv, env=variables, capture_output=True, text=True, timeout=PLAY_TIMEOUT_S, check=False
    )


# With the other tests of the real model, so that they do not slow each other down.
@pytest.mark.xdist_group("model")
def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(
    fetched_model: None, tmp_path: Path
) -> None:
    done = play(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert set(result) == {
        "turns", "restored_tokens", "recomputed_tokens", "new_tokens", "replay_equal",
        "hub_reseeded", "branches", "offline_turns_in_one_context", "digests_equal",
        "wire_bytes_per_turn", "ttft_restored_s", "ttft_reprefill_s",
    }  # fmt: skip
    assert result["restored_tokens"] > 0
    assert result["recomputed_tokens"] <= PAGE_TOKENS + result["new_tokens"]
    assert (result["replay_equal"], result["hub_reseeded"], result["digests_equal"]) == (True,) * 3
    assert result["branches"] == 2, "the replayed answer and the talk"
    assert result["offline_turns_in_one_context"]
    assert len(result["wire_bytes_per_turn"]) == result["turns"] == 7
    assert min(result["wire_bytes_per_turn"]) > 0
    assert min(result["ttft_restored_s"], result["ttft_reprefill_s"]) > 0
    assert "FAILED" not in done.stderr
    pids = [int(pid) for pid in re.findall(r"(?:kill -9|, pid) (\d+)", done.stderr)]
    # Hub and host at first, both after the kill, the host twice more, the hub once more.
    assert len(pids) == 7
    assert [pid for pid in pids if is_alive(pid)] == []
    assert list(tmp_path.glob("antiphon-demo-*")) == []


def test_a_demo_that_can_not_begin_says_why_in_json(tmp_path: Path) -> None:
    broken = tmp_path / "cache" / "models" / fetch.path_of(fetch.MODELS[0]).name
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no model")
    done = play(tmp_path, ANTIPHON_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["reason"] == "MODEL_NOT_FETCHED"
    assert "MODEL_DIGEST_MISMATCH" in done.stderr
    assert "Traceback" not in done.stderr
