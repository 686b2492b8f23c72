"""The commands up, doctor and model, the settings, and their errors."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.daemons import Daemon, DaemonFailed, Supervisor
from antiphon.daemons.errors import HostKeyElsewhere
from replica.io import linked_hosts
from replica.link.profile_choice import named_profile
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import (
    ANTIPHON,
    HOST_MODULE,
    ROOT,
    antiphon,
    antiphon_process,
    environment,
    exits_within,
    first_line,
    forked_antiphon,
    is_alive,
    serves,
)
from tests.model_host.engine import tiny_model
from tests.support.forked_program import ForkedDaemon, ForkedProgram
from tests.support.talk import key_of

UP = ["up", "--json", "--hub-port", "0"]


@contextmanager
def started_up(folder: Path) -> Iterator[ForkedProgram]:
    """Run `antiphon up --json` with a scripted host. Its daemons are started as always."""
    with forked_antiphon(UP, environment(folder)) as process:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture
def running_up(tmp_path: Path) -> Iterator[ForkedProgram]:
    """`antiphon up` for a test that ends it or its daemons."""
    with started_up(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The ready record of an `antiphon up` that goes on."""
    with started_up(tmp_path_factory.mktemp("up")) as process:
        yield json.loads(first_line(process.stdout))


@pytest.fixture
def forked_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a supervisor of this process fork its daemons, to save each the imports."""
    monkeypatch.setattr("antiphon.daemons.supervisor.Daemon", ForkedDaemon)


def test_up_prints_addresses_and_serves_a_conversation(
    ready: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    hub = ready["hub"]["address"]
    assert ready["host"]["model"] == "Scripted"
    assert antiphon(tmp_path, "--hub-address", hub, "new").returncode == 0
    sent = antiphon_process(tmp_path, "--hub-address", hub, "send", "hello")
    assert sent.stdout == "You said: hello\n"


def test_up_vouches_for_its_own_host(ready: dict[str, dict[str, str]], tmp_path: Path) -> None:
    done = antiphon(tmp_path, "--hub-address", ready["hub"]["address"], "status", "--json")
    (host,) = json.loads(done.stdout)["hub"]["hosts"]
    assert (host["key"], host["vouched"]) == (ready["host"]["key"], True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["Ctrl-C", "hangup"])
def test_ctrl_c_and_a_closed_terminal_stop_both_daemons(
    number: signal.Signals, running_up: ForkedProgram
) -> None:
    ready = json.loads(first_line(running_up.stdout))
    running_up.send_signal(number)
    assert running_up.wait(30) == 0
    assert not is_alive(ready["hub"]["pid"])
    assert not is_alive(ready["host"]["pid"])


def test_up_makes_its_user_an_operator_and_its_daemons_end_in_good_order_when_it_is_killed(
    tmp_path: Path,
) -> None:
    """In one test, since a model host takes two seconds to start; it has several models."""
    model = tiny_model.write(tmp_path / "tiny.gguf")
    flags = ["--model", f"{model}@bf16", "--model", f"{model}@fp32"]
    variables = environment(tmp_path) | {"ANTIPHON_HOST_MODULE": "model_host"}
    with forked_antiphon([*UP, *flags], variables) as process:
        ready = json.loads(first_line(process.stdout))
        hub = ready["hub"]["address"]
        assert all(serves(ready[name]["address"]) for name in ("hub", "host"))
        shown = antiphon(tmp_path, "--hub-address", hub, "top", "--json", "--once")
        status = antiphon(tmp_path, "--hub-address", hub, "status", "--json")
        (host,) = asyncio.run(linked_hosts(hub, key_of(1), None))
        process.kill()
        _end_in_good_order(tmp_path, [ready[name]["pid"] for name in ("hub", "host")])
    assert shown.returncode == 0, shown.stdout
    sample = json.loads(shown.stdout)
    assert (sample["host"], sample["operator"]) == (ready["host"]["key"], True)
    assert [profile.name for profile in host.info.profiles] == ["Tiny", "Tiny"]
    names = ["Tiny@bf16", "Tiny@fp32"]
    assert (ready["host"]["model"], ready["host"]["models"]) == (names[0], names)
    assert json.loads(status.stdout)["hub"]["hosts"][0]["profiles"] == names
    wanted = [named_profile(host.info.profiles, name) for name in names]
    assert wanted == list(host.info.profiles)


def _end_in_good_order(folder: Path, pids: list[int]) -> None:
    """See daemons end by themselves, and close their stores, now that `up` was killed."""
    if not hasattr(os, "pidfd_open"):
        return  # waits as only Linux can
    try:
        assert [exits_within(pid, 30) for pid in pids] == [True, True]
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
    # A store that was closed has no write-ahead log.
    for name in ("hub", "host"):
        assert [path.name for path in (folder / name / "log").glob("log.db-wal")] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "hangup"])
@pytest.mark.parametrize("module", [["syncd"], ["model_host", "serve"]])
def test_a_daemon_run_alone_stops_in_good_order_and_does_not_mind_a_closed_stdin(
    module: list[str], number: signal.Signals, tmp_path: Path
) -> None:
    model = tiny_model.write(tmp_path / "tiny.gguf")
    flags = ["--data-dir", str(tmp_path / "data")]
    flags += ["--model", str(model)] if module[0] == "model_host" else ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", *module, *flags], env=environment(tmp_path),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert serves(first_line(process.stdout).split()[1])
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    assert list((tmp_path / "data" / "log").glob("log.db-wal")) == []  # the store was closed


def test_a_killed_hub_is_started_again_at_its_address_and_the_host_comes_back(
    running_up: ForkedProgram, tmp_path: Path
) -> None:
    ready = json.loads(first_line(running_up.stdout))
    hub = ready["hub"]["address"]
    assert antiphon(tmp_path, "--hub-address", hub, "new").returncode == 0
    os.kill(ready["hub"]["pid"], signal.SIGKILL)
    reported = [first_line(running_up.stderr)]
    while "is back" not in reported[-1]:
        reported.append(first_line(running_up.stderr))
    assert any("SIGKILL" in line for line in reported)
    assert hub in reported[-1]
    sent = antiphon(tmp_path, "--hub-address", hub, "send", "hello", "--wait")
    assert sent.stdout == "You said: hello\n", sent.stderr


def test_under_nohup_a_closed_terminal_stops_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["nohup", *ANTIPHON, *UP], env=environment(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        ready = json.loads(first_line(process.stdout))
        process.send_signal(signal.SIGHUP)
        os.kill(ready["hub"]["pid"], signal.SIGKILL)  # it is restarted only by one that goes on
        reported = [first_line(process.stderr)]
        while reported[-1] and not any(word in reported[-1] for word in ("is back", "stopping")):
            reported.append(first_line(process.stderr))
        process.terminate()
        process.communicate(timeout=30)
    assert "is back" in reported[-1]


def test_a_followed_log_shows_new_entries_and_lets_others_write(world: World, me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "before")
    variables = environment(world.folder) | {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_HUB": world.address,
    }  # fmt: skip
    with forked_antiphon(["log", "-f"], variables) as process:
        while "following" not in first_line(process.stderr):
            pass
        assert me.ok("send", "after") == "You said: after\n"
        shown = first_line(process.stdout)
        while "You said: after" not in shown:
            shown = first_line(process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "Traceback" not in process.communicate()[1]


def test_a_port_in_use_is_reported_and_nothing_keeps_running(world: World, tmp_path: Path) -> None:
    port = world.address.rpartition(":")[2]
    done = antiphon(tmp_path / "second", "up", "--hub-port", port)
    assert done.returncode == 1
    assert "DAEMON_FAILED" in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("forked_daemons")
async def test_a_daemon_is_killed_and_started_again(tmp_path: Path) -> None:
    reported: list[str] = []
    supervisor = Supervisor(tmp_path, host_module=HOST_MODULE, report=reported.append)
    async with supervisor:
        address, pid = supervisor.hub.ready.address, supervisor.hub.pid
        assert pid is not None
        await supervisor.hub.kill()
        assert supervisor.hub.pid is None
        assert not is_alive(pid)
        assert (await supervisor.hub.start()).address == address
        key = supervisor.host.ready.key
        await supervisor.host.kill()
        assert (await supervisor.host.start()).key == key
    assert supervisor.hub.pid is None
    assert supervisor.host.pid is None


@pytest.mark.usefixtures("forked_daemons")
async def test_the_host_links_to_the_hub_beside_it_also_where_that_has_another_key(
    tmp_path: Path,
) -> None:
    async with Supervisor(tmp_path, host_module=HOST_MODULE) as supervisor:
        before = supervisor.hub.ready
    (tmp_path / "hub" / "identity.key").unlink()
    port = int(before.address.rpartition(":")[2])
    async with Supervisor(tmp_path, port, host_module=HOST_MODULE) as supervisor:
        assert supervisor.hub.ready.address == before.address
        assert supervisor.hub.ready.key != before.key
        assert supervisor.host.pid is not None  # a scripted host is ready once it is linked


def test_up_makes_no_other_host_of_a_folder_whose_key_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "services" / "host"
    (folder / "log").mkdir(parents=True)
    (folder / "log" / "log.db").touch()
    done = antiphon(tmp_path, "up", "--data-dir", str(folder.parent), "--hub-port", "0")
    assert done.returncode == 1
    assert "identity.key is gone" in " ".join(done.stderr.split())
    assert "the folder of the host" in " ".join(done.stderr.split())
    assert "KEY_FILE_INVALID" in done.stderr
    assert not (folder / "identity.key").exists()


async def test_a_host_that_keeps_its_key_elsewhere_is_not_run_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = f"host 127.0.0.1:0 {'ab' * 32} Stray {'00' * 32}"
    code = f"import sys; print({ready!r}, flush=True); sys.stdin.read()\n"
    (tmp_path / "stray_host.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    supervisor = Supervisor(tmp_path / "data", host_module="stray_host")
    with pytest.raises(HostKeyElsewhere, match=r"identity\.key"):
        await supervisor.__aenter__()
    assert (supervisor.hub.pid, supervisor.host.pid) == (None, None)


async def test_a_daemon_that_is_never_ready_is_reported_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    code = "import sys; print('bad luck', file=sys.stderr); sys.exit(3)"
    daemon = Daemon("hub", tmp_path / "hub.log", lambda: [sys.executable, "-c", code])
    with pytest.raises(DaemonFailed, match=r"code 3 before it was ready; log: .*/hub\.log"):
        await daemon.start()
    assert daemon.log_tail() == "bad luck"
    assert daemon.pid is None


@pytest.mark.usefixtures("forked_daemons")
async def test_a_crashing_daemon_is_started_again_by_itself(tmp_path: Path) -> None:
    reported: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(tmp_path, host_module=HOST_MODULE, report=reported.put_nowait)
    async with supervisor:
        supervisor.keep_alive()
        pid = supervisor.host.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            assert "the host ended (SIGKILL)" in await reported.get()
            assert "the host is back" in await reported.get()
        assert supervisor.host.pid != pid


@pytest.mark.usefixtures("forked_daemons")
async def test_a_hub_that_comes_back_with_another_key_is_told_and_has_its_host_again(
    tmp_path: Path,
) -> None:
    reported: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(tmp_path, host_module=HOST_MODULE, report=reported.put_nowait)
    async with supervisor:
        supervisor.keep_alive()
        before, host = supervisor.hub.ready.key, supervisor.host.ready.key
        (tmp_path / "hub" / "identity.key").unlink()
        assert supervisor.hub.pid is not None
        os.kill(supervisor.hub.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while "the hub has another key" not in (said := await reported.get()):
                pass
            key = supervisor.hub.ready.key
            assert before != key
            assert key.hex()[:12] in said
            assert "antiphon hub trust" in said
            while "the host is back" not in await reported.get():  # it is ready once linked
                pass
        assert supervisor.host.ready.key == host


@pytest.mark.usefixtures("forked_daemons")
async def test_a_daemon_whose_log_has_no_place_for_now_is_started_again(tmp_path: Path) -> None:
    reported: asyncio.Queue[str] = asyncio.Queue()
    supervisor = Supervisor(tmp_path, host_module=HOST_MODULE, report=reported.put_nowait)
    async with supervisor:
        supervisor.keep_alive()
        logs, aside = tmp_path / "logs", tmp_path / "logs aside"
        logs.rename(aside)
        logs.touch()
        assert supervisor.host.pid is not None
        os.kill(supervisor.host.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            assert "the host ended (SIGKILL)" in await reported.get()
            assert "the host can't be started" in await reported.get()
            logs.unlink()
            aside.rename(logs)
            while "the host is back" not in await reported.get():
                pass
        assert supervisor.hub.pid is not None


# --- doctor, model, settings ---------------------------------------------------


@pytest.mark.xdist_group("doctor")  # one process imports torch
def test_doctor_finds_everything_in_place(me: Terminal) -> None:
    me.ok("new")
    findings = {finding["check"]: finding for finding in me.records("doctor")}
    assert set(findings) == {
        "python", "torch", "folder", "key", "disk", "model", "store", "hub", "host",
    }  # fmt: skip
    assert findings["hub"]["verdict"] == "ok"
    assert findings["host"]["verdict"] == "ok"


def test_flags_beat_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('hub = "127.0.0.1:1"\nmodel = "from-file"\nsync_timeout_s = 2.5\n')
    done = antiphon(tmp_path, "--hub-address", "127.0.0.1:3", "--print-config")
    config = json.loads(done.stdout)
    assert config["hub"] == "127.0.0.1:3"
    assert config["model"] == "from-file"
    assert config["data_dir"] == str(tmp_path / "replica")
    assert config["sync_timeout_s"] == 2.5


@pytest.mark.parametrize("content", ["hub = ", "colour = 'blue'\n", "sync_timeout_s = 'soon'\n"])
def test_settings_that_do_not_parse_are_a_usage_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.toml").write_text(content)
    for arguments in (["--print-config"], ["list"]):
        done = antiphon(tmp_path, *arguments)
        assert done.returncode == 2, done.stderr
        assert "CONFIG_INVALID" in done.stderr
        assert f"{tmp_path / 'config.toml'}: " in done.stderr
        assert "print-config" not in done.stderr  # it is refused for the same reason


def test_a_settings_file_that_the_environment_names_must_exist(tmp_path: Path) -> None:
    env = {**environment(tmp_path), "ANTIPHON_CONFIG": str(tmp_path / "absent.toml")}
    with forked_antiphon(["list"], env) as process:
        _, said = process.communicate()
        assert process.wait() == 2
    assert "absent.toml does not exist" in said


def test_unknown_commands_and_options_are_usage_errors(tmp_path: Path) -> None:
    for arguments in (["sned"], ["send", "--colour"], ["log", "--graph", "a", "b"]):
        done = antiphon(tmp_path, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_an_error_with_json_is_one_object_on_stdout(tmp_path: Path) -> None:
    done = antiphon_process(tmp_path, "log", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["reason"] == "NO_CONVERSATION"


def test_the_models_known_by_name_are_listed(tmp_path: Path) -> None:
    done = antiphon_process(tmp_path, "model", "list", "--json")
    assert json.loads(done.stdout)["name"] == "SmolLM2-135M-Instruct"


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    done = antiphon_process(tmp_path, "model", "pull", "no-such-model")
    assert done.returncode == 1
    assert "MODEL_UNKNOWN" in done.stderr


def test_help_answers_at_once_and_names_every_command(tmp_path: Path) -> None:
    shown = antiphon_process(tmp_path, "--help").stdout
    for name in ("new", "chat", "send", "fork", "log", "list", "status", "verify", "export",
                 "import", "delete", "key", "model", "up", "top", "pages", "doctor"):  # fmt: skip
        assert f" {name} " in shown
