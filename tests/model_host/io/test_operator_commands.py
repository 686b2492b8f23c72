"""`antiphon top` and `antiphon pages` against a real host, at a terminal and in scripts."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.main import app
from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from tests.antiphon.cli.processes import ANTIPHON, environment
from tests.antiphon.cli.pty_terminal import CTRL_C, PtyTerminal
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk
from tests.support.writers import Writer


def variables(served: ServedHost) -> dict[str, str]:
    """Return the environment of the user whose replica talks with the host."""
    return environment(served.folder) | {
        "ANTIPHON_DATA_DIR": str(served.folder / "user"), "ANTIPHON_HUB": served.hub.address,
        "TERM": "xterm-256color",
    }  # fmt: skip


async def run(served: ServedHost, *arguments: str) -> tuple[int, str, str]:
    """Run a command in a thread, beside this loop's host; return its code and both streams."""
    own = variables(served) | {"COLUMNS": "80"}
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=own)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


async def record(served: ServedHost, *arguments: str) -> dict[str, Any]:
    code, out, err = await run(served, *arguments, "--json")
    assert code == 0, err
    made: dict[str, Any] = json.loads(out)
    return made


@pytest.fixture
async def user(served: ServedHost) -> AsyncIterator[Replica]:
    """The user's replica, which holds the store's lock as `antiphon chat` would."""
    folder = served.folder / "user"
    key = load_or_create(folder / "identity.key")
    async with Replica.open(folder / "log" / "log.db", key, served.hub.address) as replica:
        yield replica


async def test_pages_show_where_each_entry_is(served: ServedHost, user: Replica):
    async with served.host() as host:
        talk = await Talk.begin(user, host.key)
        _, answer = await talk.ask("Tell me of the sea.", tokens=6)
        await served.kept(talk, host, 1)
        made = await record(served, "pages", talk.id.hex()[:8])
        prompt = answer.usage.prompt_tokens
        assert (made["tokens"], made["cached_tokens"]) == (prompt + 6, prompt + 5)
        assert (made["absent_tokens"], made["checkpoint_tokens"]) == (1, prompt + 5)
        assert [one["role"] for one in made["entries"] if one["tokens"]][-1] == "model"
        written = {one["role"]: one["author"] for one in made["entries"]}
        assert (written["user"], written["model"]) == (user.public.hex(), host.key.hex())
        code, out, err = await run(served, "pages")
        assert code == 0, err
        assert "5 in memory · 1 to be computed" in out
        assert f"{prompt + 6} tokens" in err
        # The group has place for other commands.
        assert "show" in (await run(served, "pages", "--help"))[1]
    code, _, err = await run(served, "pages", "show")
    assert (code, "NO_HOST" in err) == (1, True)


async def test_top_shows_a_host_once_for_scripts(served: ServedHost, user: Replica):
    async with served.host() as host:
        talk = await Talk.begin(user, host.key)
        await talk.say("Write a very long story about the sea.")
        request = await talk.request(tokens=1500)
        await user.wait_for(lambda: len(talk.shown(request)) > 5, 30)
        made = await record(served, "top", "--once")
        await talk.cancel(request)
        assert made["host"] == host.key.hex()
        assert made["operator"] is False
        (one,) = made["requests"]
        assert one["conversation"] == talk.id.hex()
        assert one["output_tokens"] > 0
        await talk.answer(request)
        code, out, _ = await run(served, "top", "--host-address", host.address)
        assert code == 0
        assert "1 answered" in out
        assert max(map(len, out.splitlines())) <= 80
    code, _, err = await run(served, "top", "--once")
    assert (code, "NO_HOST" in err) == (1, True)


def until(terminal: PtyTerminal, *words: str) -> None:
    for each in words:
        terminal.expect(each)


@pytest.mark.parametrize("columns", [60, 80])
async def test_top_is_live_survives_the_hosts_restart_and_ends_with_a_key(
    served: ServedHost, user: Replica, columns: int
):
    argv = ["top", "--interval", "0.2"]
    with PtyTerminal(argv, variables(served), columns) as terminal:

        async def shows(*words: str) -> None:
            await asyncio.to_thread(until, terminal, *words)

        await shows("the host is away", "[NO_HOST]")
        async with served.host() as host:
            await shows("0 running", "nothing is being answered")
            talk = await Talk.begin(user, host.key)
            await talk.ask("Hello.", tokens=2)
            await shows("1 answered")
        await shows("the host is away")
        if columns == 80:
            async with served.host():
                await shows("0 answered")
        keys = CTRL_C if columns == 60 else "q"
        assert await asyncio.to_thread(terminal.leave, keys) == 0
        assert "Traceback" not in terminal.shown
        assert terminal.shown.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in terminal.shown


async def test_top_writes_an_object_for_each_sample(served: ServedHost, user: Replica):
    async with served.host() as host:
        found = await _first_lines(served, host, 2)
    assert [one["host"] for one in found] == [host.key.hex()] * 2
    assert found[0]["prompt_tokens_per_s"] is None
    assert found[1]["prompt_tokens_per_s"] == 0.0


async def _first_lines(served: ServedHost, host: HostServer, count: int) -> list[dict[str, Any]]:
    arguments = ("top", "--json", "--interval", "0.1", "--host-address", host.address)
    process = await asyncio.create_subprocess_exec(
        *ANTIPHON, *arguments, env=variables(served), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    found = [json.loads(await process.stdout.readline()) for _ in range(count)]
    process.terminate()
    await process.communicate()
    assert process.returncode == 0
    return found


async def test_a_request_to_a_host_that_does_not_serve_the_owner_says_so(served: ServedHost):
    config = HostConfig(
        data_dir=served.folder / "host", hub=served.hub.address, owner_keys=[Writer(5).public.hex()]
    )
    async with start_host(config, served.engine) as host:
        await record(served, "new", "--host", host.key.hex())
        await asyncio.to_thread(_send_unserved, served)


def _send_unserved(served: ServedHost) -> None:
    with PtyTerminal(["send", "Hello."], variables(served)) as terminal:
        terminal.expect("its host does not serve your conversations")
        assert terminal.leave(CTRL_C) == 130
