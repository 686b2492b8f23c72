"""The result of the self-test is kept, and used only where nothing has changed."""

import logging
import os
from pathlib import Path

import pytest

from model_host.engine import torch_engine
from model_host.engine.kept_verdicts import VERDICTS_MAX, KeptVerdicts, Verdict, decode, encode
from model_host.engine.numerics import SelfTest
from model_host.engine.torch_engine import TorchEngine
from tests.model_host.io.damage import flip_at
from tests.support.files import file_size_limit

KEY = bytes(range(32))
FAILED = Verdict(SelfTest(("head rows=3", "merge of 2 slabs rows=1"), 700, 2.5), b"c" * 32)


class Runs:
    """Counts how often the self-test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        run = torch_engine.self_test

        def counted(*given: object) -> SelfTest:
            self.count += 1
            return run(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(torch_engine, "self_test", counted)


def load(path: Path, cache: Path) -> TorchEngine:
    return TorchEngine.load(path, numerics="fp32", threads=1, cache_dir=cache)


def test_a_verdict_is_read_as_it_was_written() -> None:
    found = decode(KEY, encode(KEY, FAILED))
    assert found.numerics_class == FAILED.numerics_class
    assert found.tested == SelfTest(FAILED.tested.failures, 700, 0.0, was_kept=True)


def test_no_flipped_bit_and_no_other_key_gives_a_verdict() -> None:
    data = encode(KEY, FAILED)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(ValueError, match="wrong magic or digest"):
                decode(KEY, bytes(flipped))
    for size in range(len(data)):
        with pytest.raises(ValueError, match="wrong magic or digest"):
            decode(KEY, data[:size])
    with pytest.raises(ValueError, match="wrong magic or digest"):
        decode(b"another".ljust(32), data)


def test_the_oldest_verdicts_are_removed(tmp_path: Path) -> None:
    kept = KeptVerdicts(tmp_path)
    for number in range(VERDICTS_MAX + 3):
        key = bytes([number]) * 32
        kept.write(key, FAILED)
        os.utime(tmp_path / "verdicts" / f"{key.hex()[:32]}.verdict", (number, number))
    assert len([*(tmp_path / "verdicts").iterdir()]) <= VERDICTS_MAX + 1
    assert kept.read(bytes(32)) is None
    assert kept.read(bytes([VERDICTS_MAX + 2]) * 32) is not None


def test_a_verdict_that_finds_no_room_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start on a full disk left a file that took the place of a verdict."""
    kept = KeptVerdicts(tmp_path)
    with file_size_limit(len(encode(KEY, FAILED)) - 1), caplog.at_level(logging.WARNING):
        kept.write(KEY, FAILED)
    assert "self-test result not kept" in caplog.text
    assert not [*(tmp_path / "verdicts").iterdir()]
    kept.write(KEY, FAILED)
    assert kept.read(KEY) is not None


def test_a_second_start_runs_the_canary_alone(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    first, second = load(tiny_path, tmp_path), load(tiny_path, tmp_path)
    assert runs.count == 1
    assert (first.tested.was_kept, second.tested.was_kept) == (False, True)
    assert second.bitwise
    assert second.numerics_class == first.numerics_class
    assert second.tested.shapes_run == first.tested.shapes_run


def test_another_numerics_class_than_the_kept_one_means_a_new_test(
    tiny_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load(tiny_path, tmp_path)
    runs = Runs(monkeypatch)
    monkeypatch.setattr(torch_engine, "numerics_class", lambda *_: b"another".ljust(32))
    with caplog.at_level(logging.WARNING):
        assert not load(tiny_path, tmp_path).tested.was_kept
    assert runs.count == 1
    assert "self-test again" in caplog.text
    # The new verdict is kept in the place of the old one.
    assert load(tiny_path, tmp_path).tested.was_kept


def test_a_damaged_verdict_means_a_new_test(
    tiny_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load(tiny_path, tmp_path)
    (path,) = (tmp_path / "verdicts").iterdir()
    flip_at(path, -5)
    runs = Runs(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert load(tiny_path, tmp_path).bitwise
    assert runs.count == 1
    assert "self-test result unusable" in caplog.text


def test_a_model_that_fails_is_remembered_too(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = SelfTest(("head rows=3",), 1, 0.0)
    monkeypatch.setattr(torch_engine, "self_test", lambda _: failed)
    assert not load(tiny_path, tmp_path).bitwise
    monkeypatch.undo()
    runs = Runs(monkeypatch)
    assert not load(tiny_path, tmp_path).bitwise
    assert runs.count == 0


def test_without_a_cache_folder_every_start_tests(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    for _ in range(2):
        TorchEngine.load(tiny_path, numerics="fp32", threads=1)
    assert runs.count == 2
