"""Settings of a daemon as flags."""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from antiphon.cli.common.config import Settings as ClientSettings
from antiphon.cli.common.config import load_settings
from model_host.engine import compute_threads
from model_host.io import command
from model_host.io.config import HostConfig
from replica.io.process.settings import ConfigInvalid
from replica.io.serving.flags import read_settings
from syncd.io import HubConfig

FILE = "test.toml"
THREADS_MAX = compute_threads.THREADS_MAX


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="TEST_FLAGS_", use_attribute_docstrings=True, extra="forbid", toml_file=FILE
    )

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

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *rest: Any, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del rest
        file = TomlConfigSettingsSource(settings_cls)
        return named["init_settings"], named["env_settings"], file


def read(*arguments: str) -> Settings:
    flags = {"host_keys": "--host-key"}
    return read_settings(
        Settings,
        arguments,
        prog="test",
        description="A test.",
        flags=flags,
        others=["TEST_FLAGS_OTHER"],
    )


Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Return what reads flags with which a command ends, and returns its words."""

    def refused(
        *given: str, settings: type[BaseSettings] = Settings, flags: Mapping[str, str] | None = None
    ) -> str:
        with pytest.raises(SystemExit) as ended:
            read_settings(settings, given, prog="test", description="", flags=flags or {})
        assert ended.value.code == 2
        return capsys.readouterr().err

    return refused


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
    assert "--host-key HEX [HEX ...] Keys of hosts. (default: none)" in shown
    assert "--ring RING A ring. (default: none)" in shown


def test_settings_in_force_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--print-config", "--most", "7")
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["most"] == 7


@pytest.mark.parametrize("given", [("--most", "0"), ("--nowhere",), ("--most", "many")])
def test_bad_flags_end_with_status_2_and_say_which(
    given: tuple[str, ...], refusal: Refusal
) -> None:
    assert given[0].strip("-") in refusal(*given)


# --- wrong settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"most = [\n", "{file}: Invalid value"),
        (b"most = 1\nmost = 2\n", "{file}: Cannot overwrite a value (at line 2"),
        (b"ring = \xff", "{file}: 'utf-8' codec"),
        (b"most = 0", "{file}: most: input should be greater than or equal to 1"),
        (b"most = 'many'", "{file}: most: input should be a valid integer"),
        (b"models = [3]", "{file}: models: input should be a valid string"),
        (b"mots = 3", "{file}: mots: no setting has this name; 'most' is one"),
        (b"colour = 'blue'", "{file}: colour: no setting has this name\n"),
    ],
)
def test_a_wrong_line_of_the_file_is_named_with_the_file(
    content: bytes,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_bytes(content)
    shown = refusal("--print-config")
    assert shown.startswith("test: " + said.format(file=tmp_path / FILE)), shown
    assert "[CONFIG_INVALID]" in shown
    assert "next: " in shown
    assert "pydantic" not in shown


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TEST_FLAGS_MOST", "many", "TEST_FLAGS_MOST: input should be a valid integer"),
        ("TEST_FLAGS_HOST_KEYS", "x", "TEST_FLAGS_HOST_KEYS: this is no JSON"),
        (
            "TEST_FLAGS_HOST_KEY",
            '["x"]',
            "TEST_FLAGS_HOST_KEY: no setting has this name; 'host_keys' is one",
        ),
        ("TEST_FLAGS_COLOUR", "blue", "TEST_FLAGS_COLOUR: no setting has this name\n"),
        ("test_flags_mots", "3", "test_flags_mots: no setting has this name; 'most' is one"),
        ("TEST_FLAGS_PORT", "5", "TEST_FLAGS_PORT: no setting has this name\n"),
        ("TEST_FLAGS_", "3", "TEST_FLAGS_: no setting has this name\n"),
    ],
)
def test_a_wrong_variable_is_named(
    variable: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.setenv(variable, value)
    shown = refusal("--print-config")
    assert shown.startswith(f"test: {said}")
    assert "[CONFIG_INVALID]" in shown


@pytest.mark.parametrize(
    "ending",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_GRPC",
        "PORT",
        "PORT_80_TCP",
        "PORT_80_TCP_ADDR",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_of_this_name_are_no_settings(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    for name in (ending, f"PUBLIC_{ending}"):
        monkeypatch.setenv(f"TEST_FLAGS_{name}", "tcp://10.0.0.1:80")
    assert read().most == Settings().most


def test_variables_of_other_programs_and_in_lower_case_are_no_wrong_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("TEST_FLAGS_OTHER", "test_flags_other", "TEST_FLAG", "OTHER_TEST_FLAGS_X"):
        monkeypatch.setenv(variable, "x")
    monkeypatch.setenv("test_flags_most", "5")
    assert read().most == 5


@pytest.mark.parametrize(
    ("settings", "others"), [(HubConfig, frozenset()), (HostConfig, command.OTHERS)]
)
def test_a_daemon_knows_the_variables_of_the_command_that_begin_like_its_own(
    settings: type[BaseSettings],
    others: frozenset[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefix = str(settings.model_config["env_prefix"])
    variables = {f"ANTIPHON_{name}".upper() for name in ClientSettings.model_fields}
    assert {one for one in variables if one.startswith(prefix)} == others
    for variable in variables:
        monkeypatch.setenv(variable, "x")
    read_settings(settings, [], prog="test", description="", flags={}, others=others)


def test_a_wrong_flag_is_named_also_where_the_file_has_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text("most = 3")
    assert "test: --most: input should be greater" in refusal("--most", "0")


@pytest.mark.parametrize("flags", [[], ["--listen", "\udcff:1"]], ids=["variable", "flag"])
def test_a_value_that_is_no_text_is_named_as_that(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    if not flags:
        monkeypatch.setenv("ANTIPHON_HUB_LISTEN", "\udcff:1")
    said = "test: a flag or a variable is not UTF-8: '\\udcff:1' is not host:port"
    assert refusal(*flags, settings=HubConfig).startswith(said)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is no regular file"),
        (os.mkfifo, "is no regular file"),
        (lambda file: file.symlink_to("nowhere"), "is a link to no file"),
    ],
    ids=["a folder", "a pipe", "a link to no file"],
)
def test_what_has_the_place_of_the_file_is_not_left_out(
    make: Callable[[Path], None],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / FILE)
    assert f"test: {tmp_path / FILE} {said}" in refusal()


@pytest.mark.parametrize("settings", [HubConfig, HostConfig])
def test_no_number_of_a_daemon_is_below_zero(
    settings: type[BaseSettings], refusal: Refusal
) -> None:
    numbers = [n for n, f in settings.model_fields.items() if f.annotation in (int, float)]
    assert len(numbers) > 8
    for name in numbers:
        flag = "--" + name.replace("_", "-")
        assert f"test: {flag}: " in refusal(flag, "-1", settings=settings)


def test_no_bound_of_a_hub_is_zero_except_where_that_is_its_default(
    refusal: Refusal,
) -> None:
    bounds = {n: f.default for n, f in HubConfig.model_fields.items() if f.annotation is int}
    assert [name for name, default in bounds.items() if not default] == ["disk_bytes_max"]
    for name in bounds.keys() - {"disk_bytes_max"}:
        flag = "--" + name.replace("_", "-")
        shown = refusal(flag, "0", settings=HubConfig)
        assert f"test: {flag}: input should be greater than or equal to 1" in shown
        assert "[CONFIG_INVALID]" in shown


@pytest.mark.parametrize("settings", [HubConfig, HostConfig])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "the folder has no name"),
        ("~nobody-has-this-name/x", "no such home folder is known here"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_refused(
    settings: type[BaseSettings], value: str, said: str, refusal: Refusal
) -> None:
    """The empty one would be the working directory."""
    shown = refusal("--data-dir", value, settings=settings)
    assert shown.startswith("test: --data-dir: ")
    assert said in shown


def test_a_command_without_a_home_folder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user of a container has none, whose number has no name."""
    monkeypatch.setenv("ANTIPHON_CONFIG", "~nobody-has-this-name/config.toml")
    with pytest.raises(ConfigInvalid, match="set HOME"):
        load_settings({})


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        (HubConfig, "--creators"),
        (HubConfig, "--host-keys"),
        (HostConfig, "--owner-keys"),
        (HostConfig, "--operator-keys"),
        (HostConfig, "--invitations"),
        (HostConfig, "--model"),
    ],
)
def test_a_list_without_a_value_is_a_wrong_flag_and_not_everyone(
    settings: type[BaseSettings], flag: str, refusal: Refusal
) -> None:
    """As `--creators $KEY` is where the variable is unset."""
    shown = refusal(flag, "--print-config", settings=settings)
    assert f"argument {flag}: expected " in shown
    assert "one argument" in shown


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_number_without_a_value_is_refused(value: str, refusal: Refusal) -> None:
    flag = "--hub-checkpoint-idle-s"
    assert f"test: {flag}: " in refusal(flag, value, settings=HostConfig)


KEY = "ab" * 32


@pytest.mark.parametrize(
    ("settings", "flag", "value", "said"),
    [
        (HubConfig, "--listen", "nonsense", "'nonsense' is not host:port"),
        (HubConfig, "--listen", "127.0.0.1:1,127.0.0.1:70000", "'127.0.0.1:70000' is not"),
        (HubConfig, "--host-key", "aa", "'aa' is not a key"),
        (HubConfig, "--creators", "", "'' is not a key"),
        (HubConfig, "--metrics", "nowhere", "'nowhere' is not [host:]port"),
        (HostConfig, "--hub", "127.0.0.1:0", "'127.0.0.1:0' is not host:port"),
        (HostConfig, "--hub-key", KEY + "c", f"'{KEY}c' is not a key"),
        (HostConfig, "--listen", "127.0.0.1", "'127.0.0.1' is not host:port"),
        (HostConfig, "--owner-key", "alice", "'alice' is not a key"),
        (HostConfig, "--operator-key", "bob", "'bob' is not a key"),
        (HostConfig, "--metrics", "1:x", "'1:x' is not [host:]port"),
    ],
)
def test_a_wrong_address_or_key_of_a_daemon_is_named_like_any_setting(
    settings: type[BaseSettings],
    flag: str,
    value: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = {f"{one}_keys": f"--{one}-key" for one in ("host", "owner", "operator")}
    name = {of: name for name, of in flags.items()}.get(flag, flag.strip("-").replace("-", "_"))
    several = isinstance(settings.model_fields[name].get_default(call_default_factory=True), list)
    text = json.dumps([value] if several else value)

    said_of = partial(refusal, settings=settings, flags=flags)
    assert said_of(flag, value).startswith(f"test: {flag}: {said}")
    file = tmp_path / str(settings.model_config["toml_file"])
    file.write_text(f"{name} = {text}")
    assert f"{file}: {name}: {said}" in said_of()
    variable = f"{settings.model_config['env_prefix']}{name.upper()}"
    monkeypatch.setenv(variable, text if several else value)
    assert f"test: {variable}: {said}" in said_of()
    assert "[CONFIG_INVALID]" in said_of()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (HubConfig, "data_dir"), (HostConfig, "data_dir"), (HostConfig, "key_ring"),
        (ClientSettings, "data_dir"), (ClientSettings, "services_dir"),
    ],
)  # fmt: skip
def test_a_folder_whose_name_has_a_zero_byte_is_refused(
    settings: type[BaseSettings], name: str
) -> None:
    with pytest.raises(ValueError, match="the name of a folder has no zero byte"):
        settings(**{name: "a\0b"})


def test_an_empty_address_of_metrics_or_key_of_a_hub_is_none() -> None:
    assert HubConfig(metrics="").metrics == HostConfig(hub_key="").hub_key == ""
    assert HostConfig(hub_key=KEY.upper()).hub_key == KEY


@pytest.mark.parametrize(
    ("flag", "values", "said"),
    [
        ("--context-tokens", ["1"], "a context has 2 tokens at least, or 0"),
        (
            "--threads",
            [str(THREADS_MAX + 1)],
            f"input should be less than or equal to {THREADS_MAX}",
        ),
        ("--model", ["one", "other", "one"], "one is given twice"),
        ("--model", [*"abcdefghijklmnopq"], "17 models; a host offers 16 at most"),
    ],
)
def test_what_no_host_can_serve_is_named_like_any_setting(
    flag: str, values: list[str], said: str, refusal: Refusal
) -> None:
    given = [word for value in values for word in (flag, value)]
    assert f"test: {flag}: {said}" in refusal(*given, settings=HostConfig)
