"""Calls that end, and the waits of the level-1 client in JavaScript (spec/13-level-1 §4, §5)."""

import json
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from antiphon.v1 import sync_pb2 as pb
from tests.clients.test_js import client, node
from tests.clients.test_js_refusals import printed
from tests.support.lying_hub import lying_hub

__all__ = ["node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


def stated(reason: str, domain: str, seconds: int | None = None) -> Status:
    """Return a status as any service states it; `seconds` are those of its RetryInfo."""
    details = [ErrorInfo(reason=reason, domain=domain)]
    if seconds is not None:
        details.append(RetryInfo(retry_delay=Duration(seconds=seconds)))  # type: ignore[arg-type]
    packed = [Any() for _ in details]
    for one, detail in zip(packed, details, strict=True):
        one.Pack(detail)
    return Status(code=14, message="words", details=packed)


@pytest.mark.parametrize(
    "trailer",
    [
        pytest.param(b"\xff\xff\xff", id="garbage"),
        pytest.param(b"\x0b\x0c", id="a group"),
        pytest.param(b"\x1a\x05\x0a\x7f", id="cut off"),
        pytest.param(Status(code=14), id="no ErrorInfo"),
        pytest.param(stated("STOCKOUT", "googleapis.com"), id="another domain"),
    ],
)
async def test_a_call_without_an_error_of_the_hub_is_repeated_as_the_same_bytes(
    node: str, tmp_path: Path, trailer: Status | bytes
) -> None:
    """13 §5: nothing is known of it. It ended the client."""
    async with lying_hub() as hub, client(node, hub.address, tmp_path / "js") as js:
        hub.push_fails = trailer
        await js.say("one")
        assert (await js.next("retry"))["reason"] == "UNAVAILABLE"
        assert (await js.next("answer"))["text"] == "hi"
        await js.end()
    assert hub.pushes == 2


WAITING = """
import { once } from 'node:events';
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
process.on('warning', ({ name }) => console.log(name));
client.ask('one');
console.log((await once(client, 'retry'))[0].waitMs);
setImmediate(() => client.close());
"""


@pytest.mark.parametrize(("seconds", "waits_ms"), [(3_000_000, 3_000_000_000), (-5, -5000)])
async def test_a_wait_out_of_range_is_bounded_and_ends_with_the_client(
    node: str, tmp_path: Path, seconds: int, waits_ms: int
) -> None:
    """A timer that is too long ends at once, with a warning: 100 Watches a second came of it."""
    async with lying_hub() as hub:
        hub.watch_fails = stated("RATE_LIMITED", "antiphon.v1", seconds)
        assert await printed(node, WAITING, hub.address, str(tmp_path)) == [str(waits_ms)]


TEXTS = r"""
import { Client } from './client.mjs';
const client = new Client('127.0.0.1:1', process.argv[1]);
const told = ({ reason }) => console.log(reason);
for (const text of ['', 'a\ud800b']) await client.ask(text).catch(told);
client.close();
"""


async def test_half_a_character_is_no_text(node: str, tmp_path: Path) -> None:
    """It was sent as U+FFFD."""
    assert await printed(node, TEXTS, str(tmp_path)) == ["ARGUMENT_INVALID"] * 2


async def test_a_host_without_a_key_is_none(node: str, tmp_path: Path) -> None:
    for info in (pb.HostInfo(key=b"short"), None):
        async with lying_hub() as hub, client(node, hub.address, tmp_path / "js") as js:
            hub.hosts = [pb.LinkedHost(info=info, vouched=True)]
            await js.say("one")
            assert (await js.next("failed"))["reason"] == "NO_HOST"
        kept = tmp_path / "js" / "client.json"
        assert not kept.exists() or "conversation" not in json.loads(kept.read_text())
