"""Settings of a daemon as flags."""

import json
from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from replica.io.flags import read_settings


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_FLAGS_", use_attribute_docstrings=True)

    data_dir: Path = Path("here")
    """Where it is, in 100 % of cases."""
    models: tuple[str, ...] = ("first",)
    """Each model."""
    host_keys: list[str] = Field(default_factory=list)
    """Keys of hosts."""
    ring: Path | None = None
    """A ring."""
    most: int = Field(3, ge=1)
    """The most."""


def read(*arguments: str) -> Settings:
    flags = {"host_keys": "--host-key"}
    return read_settings(Settings, arguments, prog="test", description="A test.", flags=flags)


def test_flags_beat_the_environment_and_that_beats_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_FLAGS_MOST", "5")
    monkeypatch.setenv("TEST_FLAGS_RING", "/ring")
    made = read("--most", "7")
    assert (made.most, made.ring, made.data_dir) == (7, Path("/ring"), Path("here"))


def test_a_setting_with_several_values_takes_its_flag_several_times() -> None:
    made = read("--models", "a", "--models", "b", "--host-key", "x", "y", "--host-key", "z")
    assert (made.models, made.host_keys) == (("a", "b"), ["x", "y", "z"])


def test_the_help_is_the_docstrings_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert "--data-dir DATA_DIR Where it is, in 100 % of cases. (default: here)" in shown
    assert "--models MODELS Each model. (default: first)" in shown
    assert "--host-key [HEX ...] Keys of hosts. (default: none)" in shown
    assert "--ring RING A ring. (default: none)" in shown


def test_settings_in_force_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--print-config", "--most", "7")
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["most"] == 7


@pytest.mark.parametrize("given", [("--most", "0"), ("--nowhere",), ("--most", "many")])
def test_bad_flags_end_with_status_2_and_say_which(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*given)
    assert ended.value.code == 2
    assert given[0].strip("-") in capsys.readouterr().err
