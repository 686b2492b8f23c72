"""Forked lanes are shown where a person looks, with the device and what to do."""

from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import ConversationId
from replica.io import keys
from replica.io.store.store import Store
from replica.log import Kind, codec
from replica.log.entry import Entry, body_digest, entry_id, salted, sign
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.writers import said


def forked(world: World, me: Terminal) -> str:
    """Begin a conversation, and store a second entry at the last position of its lane."""
    conversation: str = me.record("new")["conversation"]
    me.ok("send", "--no-request", "before")

    async def fork() -> None:
        key = keys.load_or_create(me.data_dir / "identity.key")
        async with await Store.open(me.store_path) as store:
            entries = (await store.load(ConversationId(bytes.fromhex(conversation)))).entries
            last = next(e for e in entries if e.header.kind == Kind.MESSAGE)
            await store.append([rewritten(last, key, codec.encode_body(said("other")))])

    world.background.run(fork())
    return conversation


def rewritten(entry: Entry, key: Ed25519PrivateKey, body: bytes) -> Entry:
    """Return another entry of the same author at the position of `entry`."""
    data = salted(bytes(16), body)
    header = replace(entry.header, body_digest=body_digest(data), body_bytes=len(data))
    encoded = codec.encode_header(header)
    return Entry(encoded, sign(encoded, key), data, entry_id(encoded), header)


def test_a_fork_is_shown_once_with_the_device_and_what_to_do(world: World, me: Terminal) -> None:
    conversation = forked(world, me)
    for arguments in (["status"], ["log"], ["log", "--graph"]):
        stderr = me.run(*arguments).stderr
        assert stderr.count("this device wrote two histories") == 1, arguments
        assert "backup" in stderr
    (status,) = me.record("status")["conversations"]
    (fork,) = status["forks"]
    assert len(fork["entries"]) == 2
    assert "this device wrote two histories" in me.run("chat", conversation, typed="").stderr


def test_a_fork_is_history_and_no_failure_of_verify(world: World, me: Terminal) -> None:
    conversation = forked(world, me)
    record = me.record("verify", conversation)
    assert record["ok"]
    assert any("forked lane" in words for words in record["noted"])
    other = world.replica("other")
    other.ok("import", str(export(me, conversation)))
    shown = other.run("log", conversation).stderr
    assert "the device" in shown
    assert "revoke" in shown


def export(terminal: Terminal, conversation: str) -> Path:
    path = terminal.data_dir / "bundle"
    terminal.ok("export", conversation, str(path))
    return path
