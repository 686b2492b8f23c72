"""The plots of the benchmarks can be drawn from the results that are kept."""

import json
from pathlib import Path

import pytest

from bench.__main__ import BENCHES, FOLDER
from bench.plots import draw

RESULTS = json.loads((FOLDER / "results.json").read_text())


@pytest.mark.parametrize("name", BENCHES)
def test_the_plot_of_each_benchmark_can_be_drawn(name: str, tmp_path: Path) -> None:
    (path,) = draw(name, RESULTS[name], tmp_path)
    assert path.stat().st_size > 1_000
