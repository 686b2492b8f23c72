"""How many bytes does a turn cost on the wire, besides its new content?

200 turns of 2 KB in and 1 KB out. The hub and the host are real, the host's
engine is a script. Bytes are counted at the socket, in a relay between client
and hub, per direction, HTTP/2 and all; a second reader counts what drafts
cost. Beside it the same conversation as streaming Chat Completions requests.
"""

import asyncio
import json
import logging
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.relay import Relay
from bench.result import Goal, arguments, report, say
from bench.scripted_engine import ScriptedEngine
from bench.talk import Talk
from model_host.engine.gguf_file import open_model_file
from model_host.engine.tokenizer import Tokenizer
from model_host.io.config import HostConfig
from model_host.io.fetch import resolve
from model_host.io.server import start as start_host
from replica.conversation.place import newest_place
from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from replica.io.requests.turns import RequestOptions, say_and_request
from replica.log import public_key
from replica.log.body import (
    Generation,
    Genesis,
    Grant,
    Member,
    Role,
    Sampling,
    Text,
    text_of,
)
from replica.log.codec import encode_body
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub

TURNS = 200
IN_BYTES, OUT_BYTES = 2048, 1024
WORDS = "the sea was calm and a small boat lay on its side under grey clouds that day"


def words(size: int, seed: int) -> str:
    """Return plain text of `size` bytes."""
    chance = random.Random(seed)
    text = ""
    while len(text) < size:
        text += chance.choice(WORDS.split()) + " "
    return text[:size]


async def run_turn(talk: Talk, text: str) -> Generation:
    """Run a turn, and wait until no bytes are in transit."""
    options = RequestOptions(talk.host, Sampling())
    asked = await say_and_request(
        talk.replica, talk.id, (Text(text),), newest_place(talk.held), options
    )
    answer = await talk.answer(asked.request)
    await talk.replica.wait_synced(talk.id)
    return answer


async def antiphon_turns(folder: Path) -> dict[str, list[int]]:
    """Run the turns; return bytes per turn: up, down, down with drafts, content down."""
    file = open_model_file(resolve("SmolLM2-135M-Instruct"))
    tokenizer = Tokenizer.build(file.tokenizer)
    end = tokenizer.data.tokens.index("<|im_end|>")
    assert end is not None
    script = [*tokenizer.encode(words(OUT_BYTES, 0)), end]
    config = replace(file.config, context_tokens=1_000_000)
    engine = ScriptedEngine(config, script)
    engine.file, engine.numerics = replace(file, config=config), "bf16"
    host_key = public_key(load_or_create(folder / "host" / "identity.key"))
    hub = await start_hub(
        HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0", host_keys=[host_key.hex()])
    )
    series: dict[str, list[int]] = {n: [] for n in ("up", "down", "down_drafts", "content_down")}
    settings = HostConfig(
        data_dir=folder / "host",
        hub=hub.address,
        kv_bytes_max=1 << 36,
        memory_bytes_max=1 << 37,
    )
    key = Ed25519PrivateKey.generate()
    async with (
        Relay(hub.address) as plain,
        Relay(hub.address) as drafted,
        start_host(settings, engine) as host,
        Replica.open(folder / "a" / "log.db", key, plain.address) as writer,
        Replica.open(folder / "b" / "log.db", key, drafted.address) as reader,
    ):
        conversation = await writer.create(Genesis((writer.public,)))
        writer.unfollow(conversation)
        await writer.follow(conversation, drafts=False)
        grant = Member(Grant(host.key, Role.HOST))
        await writer.append(conversation, grant, parents=(EntryId(conversation),))
        await writer.wait_synced(conversation)
        await reader.follow(conversation)
        await reader.wait_synced(conversation)
        talk = Talk(writer, conversation, host.key)
        for number in range(TURNS):
            before = (plain.bytes_up, plain.bytes_down, drafted.bytes_down)
            answer = await run_turn(talk, words(IN_BYTES, number + 1))
            await talk.reach(reader)
            assert len(text_of(answer.parts)) == OUT_BYTES, len(text_of(answer.parts))
            series["up"].append(plain.bytes_up - before[0])
            series["down"].append(plain.bytes_down - before[1])
            series["down_drafts"].append(drafted.bytes_down - before[2])
            content = Generation(answer.token_ids, answer.parts, 0, 0)
            series["content_down"].append(len(encode_body(content)))
            if number % 50 == 49:
                say(f"turn {number + 1}: {series['up'][-1]} up, {series['down'][-1]} down")
    await hub.stop()
    return series


async def chat_turns() -> dict[str, list[int]]:
    """Run the same turns against a streaming Chat Completions server on loopback."""
    out = words(OUT_BYTES, 0)

    async def serve(reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        await reader.readexactly(length)
        stream.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        stream.write(b"connection: close\r\n\r\n")
        for at in range(0, len(out), 4):
            delta = {"choices": [{"index": 0, "delta": {"content": out[at : at + 4]}}]}
            event = {"id": "chatcmpl-0", "object": "chat.completion.chunk", **delta}
            stream.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        stream.write(b"data: [DONE]\n\n")
        await stream.drain()
        stream.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    series: dict[str, list[int]] = {"up": [], "down": []}
    messages: list[dict[str, str]] = []
    async with Relay(f"127.0.0.1:{port}") as relay:
        host, relay_port = relay.address.rsplit(":", 1)
        for number in range(TURNS):
            messages.append({"role": "user", "content": words(IN_BYTES, number + 1)})
            body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
            before = (relay.bytes_up, relay.bytes_down)
            reader, stream = await asyncio.open_connection(host, int(relay_port))
            stream.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\nauthorization: Bearer 0123456789abcdef\r\n"
                + f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await reader.read()
            stream.close()
            series["up"].append(relay.bytes_up - before[0])
            series["down"].append(relay.bytes_down - before[1])
            messages.append({"role": "assistant", "content": out})
    server.close()
    return series


def main() -> int:
    """Measure both and print the results."""
    flags = arguments(__doc__ or "")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as name:
        ours = asyncio.run(antiphon_turns(Path(name)))
    chat = asyncio.run(chat_turns())
    up_beyond = max(up - IN_BYTES for up in ours["up"][1:])
    pairs = zip(ours["down"], ours["content_down"], strict=True)
    down_beyond = max(down - content for down, content in list(pairs)[1:])
    growth = ours["up"][-1] / ours["up"][9]
    goals = [
        Goal("client to hub, beyond new content, worst turn (B)", up_beyond, 1536, at_least=False),
        Goal("client to hub, turn 200 / turn 10", growth, 1.1, at_least=False),
        Goal("hub to client, beyond content, worst turn (B)", down_beyond, 1536, at_least=False),
        Goal("chat / antiphon, client to server, turn 100", chat["up"][99] / ours["up"][99], 50.0,
             at_least=True),
    ]  # fmt: skip
    return report("turn_bytes", goals, {"antiphon": ours, "chat": chat}, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
