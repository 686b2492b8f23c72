"""Calls that need no key wait for their requests in a bounded number of places."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from replica import limits
from replica.io import rpc
from replica.io.serving.grpc_server import add_services, bounded_server, listen
from replica.io.serving.keyless import Keyless
from tests.support.callers import refused, until

CHECK = "/grpc.health.v1.Health/Check"


async def test_a_call_that_sends_nothing_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYLESS_CALLS_MAX", 2)
    keyless, server = Keyless(), bounded_server()
    address = listen(server, "127.0.0.1:0")
    add_services(server, {}, keyless.admit)
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(20):
        silent = []
        for places in (1, 2):
            silent.append(channel.stream_unary(CHECK)())
            await until(lambda taken=places: len(keyless._waiting) == taken)
        request = health_pb2.HealthCheckRequest().SerializeToString()
        assert await channel.unary_unary(CHECK)(request)
        assert await refused(silent[0]) == "RATE_LIMITED", "it had waited longest"
        assert len(keyless._waiting) == 1
        silent[1].cancel()
        await until(lambda: not keyless._waiting)
    await server.stop(None)


async def test_an_answer_that_waits_for_nobody_leaves_its_place() -> None:
    keyless = Keyless()
    for _ in range(3):
        async with keyless.admit(None) as run:  # type: ignore[arg-type]  # it asks no context
            assert run is rpc.at_once
    assert not keyless._waiting
