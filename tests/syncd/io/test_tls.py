"""A hub off loopback: TLS, with a certificate that the hub's key proves (spec/09-trust §2).

127.0.0.2 is this machine, but none of the addresses that are served without TLS.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from antiphon.v1 import sync_pb2 as pb
from replica.errors import ReplicaClosed
from replica.ids import PublicKey
from replica.io import Replica, Store, linked_hosts, means_away, pinned_key, rpc
from replica.io.calls.hub_calls import HubCalls
from replica.io.calls.hub_channel import TlsOnLoopback, open_channel
from replica.io.files.certificate import CertificateFile, make_certificate
from replica.io.serving.grpc_server import listen
from replica.io.serving.tls_refusals import HubKeyUnknown, TlsRequired
from replica.link.codec import decode_frame, encode_frame
from replica.link.messages import Hello, Ping, Pong, Welcome
from replica.log import Genesis
from replica.log.entry import public_key
from replica.refusals import ArgumentInvalid, HubUnreachable, PeerIdentityChanged, ProofInvalid
from syncd.io import server
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.callers import until
from tests.support.talk import key_of

ME = key_of(1)
FRIEND_KEY = public_key(key_of(2))


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubServer]:
    """A hub with one address on loopback and one that needs TLS."""
    server = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0, 127.0.0.2:0"))
    yield server
    await server.stop()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "pins.db") as opened:
        yield opened


async def test_a_replica_syncs_over_tls_with_one_on_loopback(
    hub: HubServer, tmp_path: Path
) -> None:
    plain, address = hub.addresses
    there = Replica.open(tmp_path / "a", ME, address, hub_key=hub.key)
    here = Replica.open(tmp_path / "b", ME, plain)
    async with there as far, here as near:
        conversation = await far.create(Genesis((far.public,)))
        assert await far.wait_synced(conversation)
        await near.follow(conversation)
        assert await near.wait_synced(conversation)
        assert near.shelf[conversation].log.digest == far.shelf[conversation].log.digest


async def test_a_pinned_key_is_enough(hub: HubServer, store: Store) -> None:
    address = hub.addresses[1]
    given = HubCalls(address, ME, store, hub.key)
    await given.authenticate()
    await given.close()
    assert await pinned_key(store, address) == hub.key
    pinned = HubCalls(address, ME, store)
    assert (await pinned.authenticate())[0] == hub.key
    await pinned.close()
    assert await linked_hosts(address, ME, hub.key) == ()


async def test_calls_that_are_closed_open_no_channel(
    hub: HubServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither behind the close, nor where it comes while the key is being proved."""
    closed, late = (HubCalls(hub.addresses[1], ME, store, hub.key) for _ in range(2))
    await closed.close()
    obtain = rpc.obtain_ticket

    async def closing(*given: Any) -> tuple[PublicKey, bytes]:
        proved = await obtain(*given)
        await late.close()
        return proved

    monkeypatch.setattr(rpc, "obtain_ticket", closing)
    for calls in (closed, late):
        with pytest.raises(ReplicaClosed):
            await calls.authenticate()
        assert calls._channel is None


async def test_off_loopback_an_unknown_hub_is_not_contacted(hub: HubServer, store: Store) -> None:
    address = hub.addresses[1]
    calls = HubCalls(address, ME, store)
    with pytest.raises(HubKeyUnknown):
        await calls.authenticate()
    assert calls._channel is None
    with pytest.raises(HubKeyUnknown):
        await linked_hosts(address, ME, None)
    assert await pinned_key(store, address) is None


async def test_another_key_than_the_given_one_is_refused(hub: HubServer, store: Store) -> None:
    calls = HubCalls(hub.addresses[1], ME, store, FRIEND_KEY)
    with pytest.raises(PeerIdentityChanged):
        await calls.authenticate()
    await calls.close()
    assert await pinned_key(store, hub.addresses[1]) is None


async def test_a_relay_with_its_own_certificate_is_noticed(
    hub: HubServer, store: Store, tmp_path: Path
) -> None:
    """It passes every message of the true hub on, so only the certificate differs."""
    for behind in (hub.addresses[0], hub.addresses[1]):
        relay = await Relay.started(tmp_path / "relay.pem", behind)
        calls = HubCalls(relay.address, ME, store, hub.key)
        with pytest.raises(ProofInvalid, match="certificate") as refused:
            await calls.authenticate()
        assert "relays the connection" in refused.value.next_step
        await calls.close()
        await relay.stop()
        assert relay.steps == 1  # the client's signature was never sent
        assert await pinned_key(store, relay.address) is None


async def test_tls_on_loopback_is_told_from_a_hub_that_is_away(
    hub: HubServer, store: Store
) -> None:
    """A hub that listens on 0.0.0.0, or one in a container, has it there too."""
    assert hub.certificate is not None
    both = grpc.aio.server()
    port = both.add_secure_port("127.0.0.1:0", hub.certificate.credentials())
    await both.start()
    calls = HubCalls(f"127.0.0.1:{port}", ME, store)
    with pytest.raises(TlsOnLoopback, match=f"{port} has TLS") as refused:
        await calls.authenticate()
    assert not means_away(refused.value)
    await both.stop(None)
    with pytest.raises(HubUnreachable) as absent:
        await calls.authenticate()
    assert means_away(absent.value)
    await calls.close()


async def test_a_connection_behind_a_renewed_certificate_ends_with_its_last_call(
    hub: HubServer, store: Store
) -> None:
    """Its calls go on until then, however often the hub shows another certificate."""
    assert hub.certificate is not None
    calls = HubCalls(hub.addresses[1], ME, store, hub.key)
    _, ticket = await calls.authenticate()
    first = calls.channel
    metadata = ((rpc.TICKET_METADATA, ticket),)
    link = first.stream_stream("/antiphon.v1.SyncService/Link")(metadata=metadata)
    await link.write(encode_frame(Hello((1,)), "to_hub"))
    assert isinstance(decode_frame(await link.read(), "to_client"), Welcome)
    for _ in range(3):
        hub.certificate.current = make_certificate(datetime.now(UTC))
        await calls.authenticate()
    await until(lambda: len(calls._retired) == 1)
    await link.write(encode_frame(Ping(1), "to_hub"))
    assert isinstance(decode_frame(await link.read(), "to_client"), Pong)
    with pytest.raises(grpc.aio.UsageError):
        first.stream_stream("/antiphon.v1.SyncService/Link")()
    link.cancel()
    await until(lambda: not len(calls._retired))
    await calls.close()


async def test_a_proof_on_a_connection_that_was_replaced_meanwhile_may_be_made_again(
    hub: HubServer, store: Store
) -> None:
    calls = HubCalls(hub.addresses[1], ME, store, hub.key)
    await calls.authenticate()
    await calls.channel.close()  # as behind a renewed certificate, once no call runs on it
    with pytest.raises(HubUnreachable, match="replaced meanwhile"):
        await calls.authenticate(may_reconnect=False)
    await calls.close()


async def test_a_close_ends_the_calls_behind_a_renewed_certificate_too(
    hub: HubServer, store: Store
) -> None:
    assert hub.certificate is not None
    calls = HubCalls(hub.addresses[1], ME, store, hub.key)
    _, ticket = await calls.authenticate()
    metadata = ((rpc.TICKET_METADATA, ticket),)
    link = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(metadata=metadata)
    hub.certificate.current = make_certificate(datetime.now(UTC))
    await calls.authenticate()
    assert len(calls._retired) == 1
    await calls.close()
    assert link.cancelled()
    await until(lambda: not len(calls._retired))


async def test_a_renewed_certificate_costs_a_new_connection(hub: HubServer, store: Store) -> None:
    calls = HubCalls(hub.addresses[1], ME, store, hub.key)
    await calls.authenticate()
    first = calls.channel
    await calls.authenticate()
    assert calls.channel is first
    assert hub.certificate is not None
    hub.certificate.current = make_certificate(datetime.now(UTC))
    with pytest.raises(ProofInvalid):
        await calls.authenticate(may_reconnect=False)
    assert (await calls.authenticate())[0] == hub.key
    assert calls.channel is not first
    await calls.close()


@pytest.mark.parametrize("days", [-500, 500])
async def test_a_clock_that_was_set_right_costs_no_restart(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """The clock was off while the certificate was made, as of a machine without a battery."""
    assert server.RENEWAL_CHECK_S <= 60, "the next step of CertificateOutdated says so"
    monkeypatch.setattr(server, "RENEWAL_CHECK_S", 0.01)
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.2:0"))
    assert hub.certificate is not None
    made = hub.certificate.current = make_certificate(datetime.now(UTC) + timedelta(days=days))
    await until(lambda: hub.certificate is not None and hub.certificate.current is not made)
    calls = HubCalls(hub.addresses[0], ME, store, hub.key)
    assert (await calls.authenticate())[0] == hub.key
    await calls.close()
    await hub.stop()


@pytest.mark.parametrize("days", [-500, 500])
async def test_where_a_clock_is_off_the_step_is_to_compare_the_clocks(
    hub: HubServer, tmp_path: Path, days: int
) -> None:
    assert hub.certificate is not None
    hub.certificate.current = make_certificate(datetime.now(UTC) + timedelta(days=days))
    async with Replica.open(tmp_path / "a", ME, hub.addresses[1], hub_key=hub.key) as replica:
        assert await replica.wait_for(lambda: replica.hub.is_tried, 10)
        error = replica.hub.last_error
    assert isinstance(error, HubUnreachable)
    assert "By the clock of this machine" in error.detail
    assert error.next_step.startswith("Compare this machine's clock with the hub's")
    assert not means_away(error), "it does not come back by itself"


async def test_plain_text_is_not_answered_off_loopback(hub: HubServer) -> None:
    async with grpc.aio.insecure_channel(hub.addresses[1]) as channel:
        call = channel.unary_unary("/antiphon.v1.SyncService/Authenticate")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(pb.AuthenticateRequest().SerializeToString(), timeout=5.0)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_without_tls_is_unreachable_off_loopback(store: Store) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.2:0")
    await server.start()
    calls = HubCalls(f"127.0.0.2:{port}", ME, store, FRIEND_KEY)
    with pytest.raises(HubUnreachable):
        await calls.authenticate()
    await calls.close()
    await server.stop(None)


async def test_what_has_no_tls_refuses_and_names_the_tunnel() -> None:
    with pytest.raises(TlsRequired) as refused:
        listen(grpc.aio.server(), "127.0.0.2:0")
    assert "ssh -L" in refused.value.next_step
    assert isinstance(refused.value, ArgumentInvalid)


async def test_metrics_off_loopback_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(TlsRequired, match="metrics"):
        await start(HubConfig(data_dir=tmp_path / "hub", metrics="0.0.0.0:0"))
    assert not (tmp_path / "hub").exists()


class Relay:
    """A server off loopback that passes Authenticate on to a hub, under its own certificate."""

    def __init__(self, address: str, server: grpc.aio.Server, inner: Any) -> None:
        self.address = address
        self.steps = 0
        self._server = server
        self._inner = inner

    @classmethod
    async def started(cls, path: Path, behind: str) -> "Relay":
        inner = (await open_channel(behind)).grpc
        forward = inner.unary_unary("/antiphon.v1.SyncService/Authenticate")
        server = grpc.aio.server()

        async def pass_on(data: bytes, context: object) -> bytes:
            relay.steps += 1
            answer: bytes = await forward(data)
            return answer

        handler = grpc.unary_unary_rpc_method_handler(pass_on)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "antiphon.v1.SyncService", {"Authenticate": handler}
                ),
            )
        )
        address = listen(server, "127.0.0.2:0", CertificateFile(path).credentials())
        relay = cls(address, server, inner)
        await server.start()
        return relay

    async def stop(self) -> None:
        await self._server.stop(None)
        await self._inner.close()
