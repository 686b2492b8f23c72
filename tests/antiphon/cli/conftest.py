"""A hub and a scripted host in a thread of their own, and the command run against them."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from antiphon.cli.commands import doctor
from antiphon.cli.main import app
from replica.ids import PublicKey
from replica.io import keys
from replica.io.conversations import invitations
from replica.io.driver.replica import Replica
from replica.log.entry import public_key
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.background import Background
from tests.support.callers import PATIENCE_S
from tests.support.forked_program import PROGRAMS, ForkedProgram
from tests.support.scripted_host import (
    Pace,
    Reply,
    ScriptedHost,
    echo,
    host_info,
    no_pause,
    scripted_host,
)
from tests.support.writers import low_key

Commands = tuple[tuple[str, ...], ...]
"""The words of commands, one behind the other."""


@dataclass(slots=True)
class World:
    """One hub, at most one host, and the replicas of a test."""

    folder: Path
    background: Background
    hub: HubServer | None = None
    address: str = "127.0.0.1:0"
    vouches: bool = True
    """Whether the hub vouches for the host, from its next start on."""
    creators: tuple[str, ...] = ()
    """The keys that may create conversations, from its next start on; empty for everyone."""
    _host_context: Any = None

    def __post_init__(self) -> None:
        """Make the file of the command's settings."""
        (self.folder / "config.toml").touch()

    @property
    def hub_config(self) -> HubConfig:
        """The hub's settings; the host's key is created if the host did not start yet."""
        key = public_key(keys.load_or_create(self.folder / "host" / "identity.key"))
        host_keys = [key.hex()] if self.vouches else []
        return HubConfig(
            data_dir=self.folder / "hub", listen=self.address, host_keys=host_keys,
            creators=list(self.creators),
        )  # fmt: skip

    def start_hub(self) -> None:
        """Start the hub; a restart uses the same port."""
        self.hub = self.background.run(start(self.hub_config))
        self.address = self.hub.address

    def stop_hub(self) -> None:
        """Stop the hub."""
        if self.hub is not None:
            self.background.run(self.hub.stop())
            self.hub = None

    def start_host(
        self, reply: Reply = echo, pace: Pace = no_pause, *, name: str = "host"
    ) -> ScriptedHost:
        """Start a scripted host, linked when this returns."""
        self._host_context = scripted_host(self.folder / name, self.address, reply, pace)
        host: ScriptedHost = self.background.run(self._host_context.__aenter__())
        return host

    def stop_host(self) -> None:
        """Stop the host."""
        if self._host_context is not None:
            self.background.run(self._host_context.__aexit__(None, None, None))
            self._host_context = None

    @contextmanager
    def stranger(self, address: str = "") -> Iterator[PublicKey]:
        """Link a stranger's host, with a key that sorts before that of the hub's own.

        It says that it answers questions at `address`; empty: none.
        """
        key = low_key(below=min(map(bytes.fromhex, self.hub_config.host_keys), default=b"\x01"))
        opening = Replica.open(
            self.folder / "stranger" / "log.db", key, self.address,
            host=replace(host_info(key), address=address),
        )  # fmt: skip
        replica = self.background.run(opening.__aenter__())
        assert self.background.run(replica.wait_for(lambda: replica.hub.is_linked, 10.0))
        try:
            yield replica.public
        finally:
            self.background.run(opening.__aexit__(None, None, None))

    def replica(self, name: str = "me") -> "Terminal":
        """Return a replica's command line."""
        return Terminal(self, self.folder / name)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Runs `antiphon` for one replica."""

    world: World
    data_dir: Path

    @property
    def store_path(self) -> Path:
        """The log store's file."""
        return self.data_dir / "log" / "log.db"

    def run(self, *arguments: str, typed: str | None = None) -> Result:
        """Run a command; it may raise SystemExit only."""
        environment = {
            "ANTIPHON_DATA_DIR": str(self.data_dir),
            "ANTIPHON_HUB": self.world.address,
            "ANTIPHON_CONFIG": str(self.world.folder / "config.toml"),
            "ANTIPHON_PASSPHRASE": "a passphrase",
            "NO_COLOR": "1",
        }
        result = CliRunner().invoke(app, arguments, input=typed, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def ok(self, *arguments: str, typed: str | None = None) -> str:
        """Run a command that must succeed; return its stdout."""
        result = self.run(*arguments, typed=typed)
        assert result.exit_code == 0, result.output
        return result.stdout

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with --json; return the objects on stdout, and there is nothing else."""
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def record(self, *arguments: str) -> dict[str, Any]:
        """Run a command with --json that answers with one object."""
        (record,) = self.records(*arguments)
        return record

    def refused(self, *arguments: str, typed: str | None = None, code: int = 1) -> str:
        """Run a command that must fail with a typed error; return the reason word."""
        result = self.run(*arguments, typed=typed)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        words = dict(
            line.split(maxsplit=1) for line in result.stderr.splitlines() if line.startswith("  ")
        )
        assert words["next"], result.stderr
        return words["reason"].strip()


@dataclass(frozen=True, slots=True)
class Talk:
    """A hub, a host and the replica "me" behind some commands, at rest."""

    folder: Path
    conversations: list[str]


@pytest.fixture(scope="session")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Commands], Talk]:
    """Return the function that runs commands, the same ones once in this process."""

    @cache
    def made(commands: Commands) -> Talk:
        folder = tmp_path_factory.mktemp("talk")
        with _running(folder) as world:
            me = world.replica()
            shown = [(words[0], me.ok(*words)) for words in commands]
        return Talk(folder, [said.strip() for word, said in shown if word == "new"])

    return made


@contextmanager
def _running(folder: Path) -> Iterator[World]:
    with Background() as background:
        made = World(folder, background)
        made.start_hub()
        made.start_host()
        yield made
        made.stop_host()
        made.stop_hub()


@pytest.fixture
def talk(request: pytest.FixtureRequest, talks: Callable[[Commands], Talk], tmp_path: Path) -> Talk:
    """A copy of what the TALKED of the test's module leaves."""
    done = talks(request.module.TALKED)
    shutil.copytree(done.folder, tmp_path, dirs_exist_ok=True)
    return done


@pytest.fixture
def talked(talk: Talk) -> str:
    """The id of the last conversation that TALKED begins."""
    return talk.conversations[-1]


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A hub and a host that echoes; they go on behind the `talk` of a test that asks for it."""
    if "talk" in request.fixturenames:
        request.getfixturevalue("talk")
    with _running(tmp_path) as made:
        yield made


@pytest.fixture
def me(world: World) -> Terminal:
    """The first replica."""
    return world.replica()


@pytest.fixture(autouse=True)
def whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command of this process end its look for newcomers, which it leaves after 2 s."""
    monkeypatch.setattr(invitations, "FINISH_S", PATIENCE_S)


@pytest.fixture
def short_waits(world: World) -> None:
    """Let commands wait for the hub no longer than for one on this machine."""
    (world.folder / "config.toml").write_text("sync_timeout_s = 0.5\n")


@pytest.fixture
def forked_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `doctor` fork the process that lists the models, which imports for half a second."""

    def run(argv: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        module = argv[argv.index("-m") + 1 :] if "-m" in argv else [""]
        if module[0] != "model_host":
            return subprocess.run(argv, **options)  # noqa: PLW1510  # it is among the options
        with ForkedProgram(PROGRAMS, module, os.environ) as process:
            shown, said = process.communicate()
            return subprocess.CompletedProcess(argv, process.wait(), shown, said)

    told = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(doctor, "subprocess", told)
