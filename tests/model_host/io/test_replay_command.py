"""`antiphon replay` against a real host: findings, exit codes, receipts as files."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from antiphon.cli.main import app
from bench.lying_host import Liar
from model_host.io.server import HostServer
from replica.ids import ConversationId
from replica.io.calls.replays import decode_receipt, encode_receipt
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk


class Terminal:
    """A command line beside the host, whose event loop is that of the test."""

    def __init__(self, served: ServedHost) -> None:
        self.folder = served.folder / "me"
        self.hub = served.hub.address

    async def run(self, *arguments: str) -> Result:
        environment = {
            "ANTIPHON_DATA_DIR": str(self.folder),
            "ANTIPHON_HUB": self.hub,
            "XDG_CONFIG_HOME": str(self.folder),
            "NO_COLOR": "1",
        }
        return await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment)

    async def ok(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    async def records(self, *arguments: str) -> list[dict[str, Any]]:
        out = await self.ok(*arguments, "--json")
        return [json.loads(line) for line in out.splitlines()]

    async def begin(self, host: HostServer) -> None:
        """Begin a conversation with the host, and ask it twice."""
        await self.ok("new", "--host", host.key.hex())
        for text in ("Name a colour.", "Another."):
            await self.ok("send", text, "--max-tokens", "5")


@pytest.fixture
def me(served: ServedHost) -> Terminal:
    return Terminal(served)


async def test_a_conversation_is_verified_and_its_receipt_kept(served: ServedHost, me: Terminal):
    saved = me.folder / "receipt"
    async with served.host() as host:
        await me.begin(host)
        *findings, last = await me.records("replay", "--receipt", str(saved))
        assert [one["finding"]["outcome"] for one in findings] == ["accepted", "accepted"]
        assert (last["receipt"]["mode"], last["receipt"]["accepted"]) == ("verify", 2)
        answer = findings[1]["finding"]["answer"]
        shown = await me.ok("replay", "--rebuild", "--from", answer[:12])
        assert f"answer {answer[:12]}" in shown
        assert "1 accepted, 0 differ, 0 undecided" in shown
        assert "REBUILD by host" in shown
    # The receipt is checked without host and hub.
    key = decode_receipt(saved.read_bytes()).host.hex()
    assert "2 accepted" in await me.ok("replay", "--check", str(saved), "--host", key)
    changed = replace(decode_receipt(saved.read_bytes()), differing=1)
    saved.write_bytes(encode_receipt(changed))
    refused = await me.run("replay", "--check", str(saved))
    assert refused.exit_code == 1
    assert "RECEIPT_INVALID" in refused.stderr


async def test_a_replay_that_leaves_no_answer_to_check_is_no_success(
    served: ServedHost, me: Terminal
):
    async with served.host() as host:
        await me.ok("new", "--host", host.key.hex())
        empty = await me.run("replay")
        await me.ok("send", "Name a colour.", "--max-tokens", "5")
        (listed,) = await me.records("list")
        # The id of a conversation is that of its first entry, which no context has.
        none = await me.run("replay", "--from", listed["conversation"])
    assert (empty.exit_code, none.exit_code) == (1, 1)
    assert empty.stdout.startswith("none ")
    assert "NOTHING_YET" in empty.stderr
    assert "ARGUMENT_INVALID" in none.stderr
    assert "no answer has" in none.stderr


async def test_a_difference_or_an_unjudged_answer_fails_the_command(
    served: ServedHost, me: Terminal
):
    async with served.host() as host:
        await me.begin(host)
        (listed,) = await me.records("list")
    key = load_or_create(me.folder / "identity.key")
    async with Replica.open(me.folder / "log" / "log.db", key, me.hub) as replica:
        conversation = ConversationId(bytes.fromhex(listed["conversation"]))
        await replica.load(conversation)
        await replica.follow(conversation)
        talk = Talk(replica, conversation, host.key)
        liar = Liar(replica, talk.held, host.replica.key, host.offer)
        _, request = talk.held.order.requests
        liar.answer(request, lambda honest: replace(honest, token_ids=(5, *honest.token_ids[1:])))
        await liar.publish()
    async with served.host():
        lied = await me.run("replay")
    assert lied.exit_code == 1
    assert "token at output token 0" in lied.stdout
    assert "CHECKS_FAILED" in lied.stderr
    async with served.host(replace(served.engine, numerics_class=bytes(32))):
        unjudged = await me.run("replay")
    assert unjudged.exit_code == 1
    assert "other numerics" in unjudged.stdout
    assert "log probability per token" in unjudged.stdout


async def test_without_its_host_nothing_is_replayed(served: ServedHost, me: Terminal):
    async with served.host() as host:
        await me.begin(host)
    away = await me.run("replay")
    assert away.exit_code == 1
    assert "NO_HOST" in away.stderr


async def test_a_warm_context_has_a_source_for_each_token(served: ServedHost, me: Terminal):
    async with served.host() as host:
        await me.begin(host)
        (made,) = await me.records("warm")
        sources = [made[f"{name}_tokens"] for name in ("cached", "restored", "computed")]
        assert sum(sources) == made["context_tokens"]
        again = f"{sum(sources):,} were cached, 0 restored, 0 computed"
        assert again in await me.ok("warm")
