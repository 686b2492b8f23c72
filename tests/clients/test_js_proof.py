"""The proof of a hub's key, as the level-1 client in JavaScript checks it (spec/04-link §3)."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.conformance.io.calls import challenge_of
from antiphon.v1 import sync_pb2 as pb
from replica.ids import PublicKey
from replica.link.auth import _transcript
from tests.clients.test_js import CLIENT, PATIENCE_S, ROOT, client, node
from tests.support.lying_hub import LyingHub, lying_hub

__all__ = ["node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages

Lie = Callable[[LyingHub, pb.Challenge, pb.AuthenticateRequest], None]


def small_order(_: LyingHub, challenge: pb.Challenge, __: pb.AuthenticateRequest) -> None:
    """Show the neutral element, under which R = A and S = 0 verify for any message."""
    challenge.hub_key, challenge.hub_signature = b"\1" + bytes(31), b"\1" + bytes(63)


def short_nonce(hub: LyingHub, challenge: pb.Challenge, asked: pb.AuthenticateRequest) -> None:
    """Sign a nonce of 16 bytes."""
    challenge.hub_nonce = bytes(16)
    made = replace(challenge_of(challenge), certificate_digest=bytes(32))
    client_key = PublicKey(asked.client_key)
    challenge.hub_signature = hub.me.key.sign(
        _transcript(b"\1", client_key, asked.client_nonce, made)
    )


def short_key(_: LyingHub, challenge: pb.Challenge, __: pb.AuthenticateRequest) -> None:
    challenge.hub_key = b"short"


def other_signature(_: LyingHub, challenge: pb.Challenge, __: pb.AuthenticateRequest) -> None:
    challenge.hub_signature = bytes([1]) * 64


def nothing(_: LyingHub, challenge: pb.Challenge, __: pb.AuthenticateRequest) -> None:
    challenge.Clear()


@pytest.mark.parametrize("lie", [small_order, short_nonce, short_key, other_signature, nothing])
async def test_a_hub_that_does_not_prove_its_key_is_refused_and_not_pinned(
    node: str, tmp_path: Path, lie: Lie
) -> None:
    async with lying_hub() as hub, client(node, hub.address, tmp_path / "js") as js:
        hub.challenge = lambda challenge, asked: lie(hub, challenge, asked)
        await js.say("one")
        failed = await js.next("failed")
        assert failed["reason"] == "PROOF_INVALID"
        assert "undefined" not in failed["detail"]
        assert not hub.entries


PROGRAM = """
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
client.on('failed', (error) => console.log(error.message));
await client.ask('one').catch(({ reason }) => console.log(reason));
client.on('answer', ({ text }) => { console.log(text); client.close(); });
await client.ask('two').catch(({ reason }) => { console.log(reason); client.close(); });
"""


async def test_the_key_of_an_unproved_hub_is_not_kept_in_memory_either(
    node: str, tmp_path: Path
) -> None:
    """It was, and the hub itself was PEER_IDENTITY_CHANGED then."""
    async with lying_hub() as hub:

        def lie_once(challenge: pb.Challenge, _: pb.AuthenticateRequest) -> None:
            hub.challenge = lambda *_: None
            challenge.hub_key = hub.eve.public

        hub.challenge = lie_once
        process = await asyncio.create_subprocess_exec(
            node, "--input-type=module", "-e", PROGRAM, hub.address, str(tmp_path / "js"),
            cwd=CLIENT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            shown, _ = await process.communicate()
        assert shown.decode().splitlines() == ["PROOF_INVALID", "hi"]
        kept = json.loads((tmp_path / "js" / "client.json").read_text())
        assert kept["hub"] == hub.me.public.hex()


SIGNATURES = """
import fs from 'node:fs';
import * as e from './encode.mjs';
const hex = (text) => Buffer.from(text, 'hex'), wrong = [];
const { vectors } = JSON.parse(fs.readFileSync(process.argv[1]));
for (const v of vectors) {
  const holds = e.isSigned(hex(v.public_key), hex(v.signature), hex(v.message));
  if (holds !== (v.reason === null)) wrong.push(v.comment);
}
console.log(JSON.stringify({ count: vectors.length, wrong }));
"""


def test_it_verifies_as_the_vectors_say(node: str) -> None:
    """ENT-6: points that are not canonical or of small order included."""
    vectors = ROOT / "spec" / "vectors" / "signature.json"
    command = [node, "--input-type=module", "-e", SIGNATURES, str(vectors)]
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, check=True, timeout=30)
    found = json.loads(done.stdout)
    assert (found["count"] > 10, found["wrong"]) == (True, [])
