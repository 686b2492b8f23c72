"""Golden screens of `up`, of the daemons run alone, and of the models they serve."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_host.io.fetch import MODELS, path_of
from tests.antiphon.cli.inside_terminal import screen_of
from tests.antiphon.cli.processes import environment
from tests.antiphon.cli.pty_terminal import CTRL_C, PtyTerminal
from tests.antiphon.cli.test_screens import WIDTHS, compare, compare_steady, steady
from tests.antiphon.cli.virtual_screen import VirtualScreen
from tests.model_host.engine import tiny_model


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is as long in every run."""
    made = Path(tempfile.mkdtemp(prefix="screens-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def test_up_shows_its_golden_screen(folder: Path) -> None:
    own = environment(folder) | {"TERM": "xterm-256color"}
    shown = {}
    for columns in WIDTHS:
        with PtyTerminal(["up", "--hub-port", "0"], own, columns) as terminal:
            terminal.expect_screen("Ctrl-C stops both")
            second = screen_of(["up"], own, columns)
            assert terminal.leave(CTRL_C) == 0
            shown[columns] = f"{terminal.screen.text}\n\n$ antiphon up\n{second}"
    compare("up", "antiphon up --hub-port 0", shown)


WIDE = 1_000
"""Columns of a terminal that breaks no line of a daemon."""


def steady_log(shown: str) -> str:
    """Return a daemon's output with times, and what depends on the machine, replaced."""
    shown = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-11-22T12:00:00.000000Z", shown)
    shown = re.sub(r"(bitwise|from_cache|threads_agree|verdict_kept)=\w+", r"\1=True", shown)
    shown = re.sub(r"linear=\w+", "linear=packed", shown)
    return steady(in_order(shown))


def in_order(shown: str) -> str:
    """Return a host's output with the line of the thread that loads behind the first one."""
    first, *lines = shown.splitlines(keepends=True)
    return "".join([first, *sorted(lines, key=lambda line: "weights cache" not in line)])


def run_alone(argv: list[str], folder: Path) -> PtyTerminal:
    """Run a daemon of `folder` at a wide terminal."""
    own = environment(folder) | {"TERM": "xterm-256color", "ANTIPHON_HOST_MODULE": "model_host"}
    own["ANTIPHON_CACHE_DIR"] = str(folder / "cache")
    listen = ["--listen", "127.0.0.1:0", "--data-dir", str(folder / argv[0])]
    return PtyTerminal([*argv, *listen], own, WIDE)


def compare_broken(command: str, lines: str) -> None:
    """Compare with golden screens: lines that know no width, as terminals break them."""
    typed = lines.replace("\n", "\r\n")
    shown = {columns: VirtualScreen(columns).feed(typed).text for columns in WIDTHS}
    compare_steady(command.replace(" ", "-"), f"antiphon {command}", shown)


def test_daemons_run_alone_show_their_golden_screens(folder: Path) -> None:
    model = tiny_model.write(folder / "tiny.gguf")
    with run_alone(["hub", "serve"], folder) as hub:
        hub.expect("\nhub ")
        hub.expect("\n")
        address = hub.screen.text.split("\nhub ")[1].split()[0]
        options = ["--model", str(model), "--hub", address, "--numerics", "fp32"]
        with run_alone(["host", "serve", *options], folder) as host:
            host.expect("\nhost ")
            host.expect("\n")  # else ^C is in the middle of the line
            assert host.leave(CTRL_C) == 0
            compare_broken("host serve", steady_log(host.screen.text))
        assert hub.leave(CTRL_C) == 0
        compare_broken("hub serve", steady_log(hub.screen.text))


def at_models(folder: Path, command: str, columns: int) -> str:
    """Return what `antiphon model COMMAND` shows where the models are in a cache folder."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        if not (link := folder / "models" / model.file_name).exists():
            link.symlink_to(path_of(model))
    own = environment(folder) | {"TERM": "xterm-256color", "ANTIPHON_CACHE_DIR": str(folder)}
    with PtyTerminal(["model", command], own, columns) as terminal:
        assert terminal.exit_code() == 0
        return terminal.screen.text


def test_the_models_are_listed_on_a_golden_screen(folder: Path) -> None:
    compare_broken("model list", steady(at_models(folder, "list", WIDE)))


def test_a_model_that_is_here_is_checked_on_a_golden_screen(folder: Path) -> None:
    shown = {columns: at_models(folder, "pull", columns) for columns in WIDTHS}
    compare("model-pull", "antiphon model pull", shown)
