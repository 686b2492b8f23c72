"""Checkpoints at the hub: uploaded, found by another host of the ring, refused if changed."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import host_pb2
from model_host.generation import gather_branch, render_branch
from model_host.io.contexts import hub_checkpoints
from model_host.io.contexts.hub_tier import HubTierCounters
from model_host.io.server import HostServer
from model_host.kv import Archive, RestoreCost, conversation_of, encrypt_archive
from model_host.kv.archive import ARCHIVE_CHUNK_BYTES, ARCHIVE_HEADER_BYTES
from model_host.rendering import Contexts
from replica.errors import Unavailable
from replica.ids import ConversationId, Digest, EntryId
from replica.io import BlobCalls, now_ms
from replica.io.calls.host_calls import HostCalls
from replica.log import Kind
from replica.log.body import Checkpoint, Generation
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.io.tiny_hosts import TinyHosts, tiny_hosts
from tests.support.callers import until
from tests.support.talk import Talk

pytestmark = pytest.mark.usefixtures("own_cache")

LONG = "hello " * 80
TWO_CHUNKS = "hello " * 400
BUDGET = 1 << 30


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[TinyHosts]:
    async with tiny_hosts(tmp_path) as made:
        yield made


def checkpoints(talk: Talk) -> list[Checkpoint]:
    """Return the checkpoints that the reader's log has, the oldest first."""
    entries = [e for e in talk.held.log.entries.values() if e.header.kind == Kind.CHECKPOINT]
    entries.sort(key=lambda entry: entry.order_key)
    return [talk.held.log.body(entry.id) for entry in entries]


def prefilled(answer: Generation) -> bool:
    return answer.usage.prefilled_tokens == answer.usage.prompt_tokens


async def follows(host: HostServer, talk: Talk) -> None:
    entries = set(talk.held.log.entries)
    shelf = host.replica.shelf
    await host.replica.wait_for(
        lambda: talk.id in shelf and entries <= set(shelf[talk.id].log.entries), 30
    )


async def test_another_host_of_the_ring_restores_what_one_uploaded(hosts: TinyHosts):
    talk = await hosts.talk("one", "two")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET):
        _, first = await talk.ask(LONG, tokens=4)
        await until(lambda: checkpoints(talk))
    (body,) = checkpoints(talk)
    tokens = first.usage.prompt_tokens + first.usage.output_tokens - 1
    assert body.tokens == tokens
    (blob,) = hosts.blobs(talk)
    assert (blob.name, blob.stat().st_size) == (body.blob.hex(), body.size_bytes)
    assert abs(body.expire_time_ms - now_ms() - 7 * 86_400_000) < 60_000
    moved = Talk(hosts.replica, talk.id, hosts.key("two"))
    async with hosts.host("two") as host:
        await follows(host, talk)
        request, answer = await moved.ask("hello", tokens=5)
        assert answer.usage.restored_tokens == tokens
        assert host.hub_tier.counters.restored == 1
        await until(lambda: host.thread.counts.audits.audited > 0)
        assert host.thread.counts.audits.mismatches == 0
        await host.thread.evict(talk.id, checkpoints=True)
        host.hub_tier._refused.extend(e for e in moved.held.log.entries)
        again = await moved.answer(await moved.regenerate(request))
    assert prefilled(again)
    assert again.token_ids == answer.token_ids
    assert len(hosts.blobs(talk)) == 1  # without a budget this host uploads nothing


async def test_a_later_answer_replaces_the_archive_and_evict_removes_it(hosts: TinyHosts):
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        for count in (1, 2):
            await talk.ask(LONG, tokens=2)
            await until(lambda count=count: host.hub_tier.counters.uploaded == count)
            await until(lambda count=count: len(checkpoints(talk)) == count)
            await until(lambda: len(hosts.blobs(talk)) == 1)
        assert hosts.blobs(talk)[0].name == checkpoints(talk)[-1].blob.hex()
        stored = hosts.blobs(talk)[0].stat().st_size
        await until(lambda: host.hub_tier.nbytes == stored)  # once the removal is answered
        evict = host_pb2.EvictRequest(conversation=talk.id, checkpoints=True)
        async with HostCalls(host.address, hosts.replica.key, host.key) as calls:
            dropped = await calls._call("Evict", evict)
        assert dropped.checkpoints == 3  # two on disk, one at the hub
        assert hosts.blobs(talk) == []


async def test_a_checkpoint_whose_namespace_is_distrusted_is_not_uploaded(hosts: TinyHosts):
    """PAGE-16: every other host of the ring would use its pages."""
    talk = await hosts.talk("one")
    async with hosts.host("one") as host:
        await talk.ask(LONG, tokens=2)
        await until(lambda: host.thread.counts.writes.written == 1)
        held, tier = host.replica.shelf[talk.id], host.hub_tier
        (manifest,) = await host.profiles.manifests(talk.id)
        tier._tier = replace(tier._tier, bytes_max=BUDGET)
        host.profiles.pages.distrust(manifest.namespace)
        await tier._upload(held, host.offer)
        assert (tier.counters.uploaded, hosts.blobs(talk)) == (0, [])


async def test_an_evict_removes_what_is_being_uploaded_and_counts_what_is_gone(
    hosts: TinyHosts, monkeypatch: pytest.MonkeyPatch
):
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        tier, write, remove = host.hub_tier, BlobCalls.write, BlobCalls.remove
        evicted = asyncio.Event()

        async def write_evicted(self: BlobCalls, *what: object) -> None:
            if not evicted.is_set():
                await tier.forget(host.replica.shelf[talk.id])
                evicted.set()
            await write(self, *what)

        async def refuse(*_: object) -> None:
            raise Unavailable("the hub stops")

        monkeypatch.setattr(BlobCalls, "write", write_evicted)
        await talk.ask(LONG, tokens=2)
        await until(lambda: tier.counters.removed == 1)
        assert (hosts.blobs(talk), tier.nbytes) == ([], 0)
        await talk.ask("Once more.", tokens=2)
        await until(lambda: tier.counters.uploaded == 2)
        monkeypatch.setattr(BlobCalls, "remove", refuse)
        assert await tier.forget(host.replica.shelf[talk.id]) == 0
        monkeypatch.setattr(BlobCalls, "remove", remove)
        assert await tier.forget(host.replica.shelf[talk.id]) == 1


async def test_the_oldest_archive_makes_room_within_the_budget(hosts: TinyHosts):
    first, second = await hosts.talk("one"), await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=150_000) as host:
        for count, talk in enumerate((first, second), 1):
            await talk.ask(LONG, tokens=2)
            await until(lambda count=count: host.hub_tier.counters.uploaded == count)
        assert [len(hosts.blobs(talk)) for talk in (first, second)] == [0, 1]
        assert host.hub_tier.counters.removed == 1
    # A budget below any archive uploads nothing.
    third = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=1_000) as host:
        await third.ask(LONG, tokens=2)
        await until(lambda: not host.hub_tier._due)
        assert (host.hub_tier.counters.uploaded, checkpoints(third)) == (0, [])


async def test_an_archive_that_fits_beside_no_other_takes_the_place_of_the_one_it_replaces(
    tmp_path: Path,
):
    async with tiny_hosts(tmp_path, expiring_blobs_bytes_max=150_000) as hosts:
        talk = await hosts.talk("one")
        async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
            counters = host.hub_tier.counters
            for count, text in enumerate((LONG, "Once more."), 1):
                await talk.ask(text, tokens=2)
                await until(lambda count=count: len(checkpoints(talk)) == count)
            (blob,) = hosts.blobs(talk)
            assert blob.name == checkpoints(talk)[-1].blob.hex()
            assert (counters.uploaded, counters.removed, counters.upload_failures) == (2, 1, 0)
            # One that fits not even alone is refused, and the next one is tried again.
            await talk.ask(LONG, tokens=2)
            await until(lambda: counters.upload_failures == 1)
            assert len(checkpoints(talk)) == 2


async def test_an_upload_that_failed_is_tried_again_and_leaves_nothing_of_itself(
    hosts: TinyHosts, monkeypatch: pytest.MonkeyPatch
):
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        counters, write, remove = host.hub_tier.counters, BlobCalls.write, BlobCalls.remove

        async def write_half(self: BlobCalls, *what: Any) -> None:
            conversation, blob, size, read, expire_ms = what
            monkeypatch.setattr(BlobCalls, "write", write)
            await write(
                self, conversation, blob, size, lambda at: read(at) if not at else b"", expire_ms
            )

        async def refuse_once(*_: object) -> None:
            monkeypatch.setattr(BlobCalls, "remove", remove)
            raise Unavailable("the hub stops", retry_after_s=1e9)

        monkeypatch.setattr(hub_checkpoints, "RETRY_S", 0)
        monkeypatch.setattr(hub_checkpoints, "RETRY_S_MAX", 0)
        monkeypatch.setattr(BlobCalls, "write", write_half)
        await talk.ask(TWO_CHUNKS, tokens=2)
        await until(lambda: checkpoints(talk))
        assert (counters.uploaded, counters.upload_failures) == (1, 1)
        (whole,) = hosts.blobs(talk)
        assert whole.name == checkpoints(talk)[0].blob.hex()
        # CKPT-25: so is the removal of what a newer one replaces.
        monkeypatch.setattr(BlobCalls, "remove", refuse_once)
        await talk.ask("Once more.", tokens=2)
        await until(lambda: counters.removed == 1)
        assert (counters.uploaded, counters.upload_failures) == (2, 1)
        assert len(hosts.blobs(talk)) == 1


async def test_what_is_due_while_the_hub_is_away_is_uploaded_when_it_is_back(
    hosts: TinyHosts, monkeypatch: pytest.MonkeyPatch
):
    talk = await hosts.talk("one")
    async with hosts.host("one") as host:
        await talk.ask(LONG, tokens=2)
        tier = host.hub_tier
        tier._tier = replace(tier._tier, bytes_max=BUDGET)
        monkeypatch.setattr(hub_checkpoints, "RETRY_S", 0.01)
        await hosts.hub.stop()
        await host.replica.wait_for(lambda: not host.replica.hub.is_linked, 30)
        tier.note(host.replica.shelf[talk.id], host.offer)
        config = HubConfig(data_dir=hosts.folder / "hub", listen=hosts.hub.address)
        back = await start_hub(config)
        try:
            await until(lambda: tier.counters.uploaded == 1)
            assert tier.counters.upload_failures == 0
        finally:
            await back.stop()


async def test_an_archive_larger_than_the_disk_of_a_host_is_not_fetched(hosts: TinyHosts):
    talk = await hosts.talk("one", "two")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET):
        await talk.ask(LONG, tokens=2)
        await until(lambda: checkpoints(talk))
    moved = Talk(hosts.replica, talk.id, hosts.key("two"))
    async with hosts.host("two", checkpoint_bytes_max=1_000) as host:
        await follows(host, talk)
        _, answer = await moved.ask("And then?", tokens=2)
        assert prefilled(answer)
        assert host.hub_tier.counters == HubTierCounters()


async def test_an_archive_counts_until_the_hub_has_removed_it(hosts: TinyHosts):
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        await talk.ask(LONG, tokens=2)
        await until(lambda: host.hub_tier.counters.uploaded == 1)
        stored = host.hub_tier.nbytes
        await hosts.hub.stop()
        await host.hub_tier.forget(host.replica.shelf[talk.id])
        assert host.hub_tier.nbytes == stored == hosts.blobs(talk)[0].stat().st_size
        assert host.hub_tier.counters.removed == 0


class Carrier:
    """Writes archives and CHECKPOINT entries in a host's name, and asks it to use them."""

    def __init__(self, hosts: TinyHosts, host: HostServer, talk: Talk) -> None:
        self.hosts, self.host, self.talk = hosts, host, talk

    async def export(self, talk: Talk) -> bytes:
        await self.host.thread.manifests(talk.id)  # it is written
        async with HostCalls(self.host.address, self.hosts.replica.key, self.host.key) as calls:
            return b"".join([part async for part in calls.export(talk.id)])

    async def offer(self, data: bytes, body: Checkpoint, request: EntryId) -> None:
        """Put an archive at the hub, and name it in an entry like `body`."""
        blob = Digest(hashlib.sha256(data).digest())
        expire_ms = now_ms() + 600_000
        blobs = BlobCalls(self.hosts.replica.calls())
        await blobs.write(
            self.talk.id, blob, len(data), lambda at: data[at : at + 100_000], expire_ms
        )
        held = self.host.replica.shelf[self.talk.id]
        generation = held.order.generation_of(request)
        assert generation is not None
        named = replace(body, blob=blob, size_bytes=len(data), expire_time_ms=expire_ms)
        await self.host.replica.append(self.talk.id, named, parents=(generation,))

    async def again(self, request: EntryId) -> Generation:
        """Let the host answer without anything in memory or on disk."""
        await self.host.thread.evict(self.talk.id, checkpoints=True)
        return await self.talk.answer(await self.talk.regenerate(request))


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def swapped(data: bytes) -> bytes:
    at = (ARCHIVE_HEADER_BYTES + len(data)) // 2
    return data[:ARCHIVE_HEADER_BYTES] + data[at:] + data[ARCHIVE_HEADER_BYTES:at]


def truncated(data: bytes) -> bytes:
    return data[:-1]


def under_another_ring(hosts: TinyHosts, host: HostServer, talk: Talk, data: bytes) -> bytes:
    """Return the same checkpoint as an archive of another ring."""
    namespace = namespace_of(host, talk)
    own = (hosts.folder / "ring" / "archive.secret").read_bytes()
    view = data[ARCHIVE_HEADER_BYTES:]
    chunks = (
        view[at : at + ARCHIVE_CHUNK_BYTES] for at in range(0, len(view), ARCHIVE_CHUNK_BYTES)
    )
    archive = Archive(own, namespace, data[:ARCHIVE_HEADER_BYTES], chunks)
    manifest = archive.manifest()
    payloads = list(archive.payloads(manifest))
    ring, salt = b"another ring".ljust(32), os.urandom(32)
    return b"".join(encrypt_archive(ring, conversation_of(data), salt, manifest, payloads))


def namespace_of(host: HostServer, talk: Talk) -> bytes:
    spaces = host.profiles.namespaces(host.offer)
    assert spaces is not None
    return spaces.stored(host.replica.shelf[talk.id])


async def test_changed_foreign_and_replayed_archives_are_refused_and_computed(hosts: TinyHosts):
    talk, other = await hosts.talk("one"), await hosts.talk("one")
    async with hosts.host("one") as host:
        carrier = Carrier(hosts, host, talk)
        await other.ask(f"well {LONG}", tokens=4)
        await talk.ask("hello", tokens=2)
        older = await carrier.export(talk)
        request, _ = await talk.ask(LONG, tokens=4)
        archive, foreign = await carrier.export(talk), await carrier.export(other)
        (manifest, *_) = await host.thread.manifests(talk.id)
        body = Checkpoint(
            Digest(manifest.namespace), Digest(manifest.lineage), manifest.tokens,
            Digest(bytes(32)), 1,
        )  # fmt: skip
        follow, right = await talk.ask("hello", tokens=5)
        bad = [change(archive) for change in (flipped, swapped, truncated)]
        bad += [
            under_another_ring(hosts, host, talk, archive),
            foreign,
            archive[:8] + other.id + archive[40:],
            older,
            b"no archive",
        ]
        for count, data in enumerate(bad, 1):
            await carrier.offer(data, body, request)
            answer = await carrier.again(follow)
            assert host.hub_tier.counters.refused == count
            assert prefilled(answer)
            assert answer.token_ids == right.token_ids
        assert host.hub_tier.counters.restored == host.hub_tier.counters.missed == 0
        await carrier.offer(archive, body, request)
        restored = await carrier.again(follow)
        assert restored.usage.restored_tokens == manifest.tokens
        assert restored.token_ids == right.token_ids


async def test_an_archive_that_is_gone_or_slow_is_not_waited_for(hosts: TinyHosts):
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        carrier, tier = Carrier(hosts, host, talk), host.hub_tier
        await talk.ask(LONG, tokens=4)
        await until(lambda: tier.counters.uploaded == 1)
        tier._cost.observe_restored(find_s=1e6, load_s=1e6, nbytes=1)
        tier._tier = replace(tier._tier, bytes_max=0)
        follow, right = await talk.ask("hello", tokens=5)
        assert (await carrier.again(follow)).token_ids == right.token_ids
        assert (tier.counters.declined, tier.counters.restored) == (1, 0)
        tier._cost = RestoreCost()
        # Nor is one fetched to its end that nobody wants any more.
        await host.thread.evict(talk.id, checkpoints=True)
        held = host.replica.shelf[talk.id]
        branch = gather_branch(held, held.order.nodes[held.order.seal_of[follow]], Contexts(0))
        ids = render_branch(branch, host.offer.renderer).context.ids
        async with host.profiles.using(host.offer) as loaded:
            await tier.fetch(held, loaded, ids, lambda: False)
        assert await host.thread.manifests(talk.id) == []
        (body,) = checkpoints(talk)
        await BlobCalls(hosts.replica.calls()).remove(talk.id, body.blob)
        answer = await carrier.again(follow)
        assert prefilled(answer)
        assert answer.token_ids == right.token_ids
        assert (tier.counters.missed, tier.counters.restored) == (1, 0)


async def test_what_is_in_memory_shortens_the_wait_for_an_archive(
    hosts: TinyHosts, monkeypatch: pytest.MonkeyPatch
):
    """CKPT-24: only the rest would be computed."""
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        tier = host.hub_tier
        request, _ = await talk.ask(LONG, tokens=4)
        await until(lambda: tier.counters.uploaded == 1)
        held, waited = host.replica.shelf[talk.id], asyncio.Event()
        branch = gather_branch(held, held.order.nodes[held.order.seal_of[request]], Contexts(0))
        ids = render_branch(branch, host.offer.renderer).context.ids
        ids = [*ids, *held.log.body(held.order.generation_of(request)).token_ids]

        async def one_missing(*_: object) -> int:
            return 1

        async def never(*_: object) -> float:
            waited.set()
            await asyncio.Event().wait()
            return 0.0

        monkeypatch.setattr(tier, "_missing", one_missing)
        monkeypatch.setattr(tier, "_download", never)
        async with host.profiles.using(host.offer) as loaded:
            loaded.thread.cost.set_row(1.0)
            async with asyncio.timeout(30):  # the whole archive would be 80 s of computing
                await tier.fetch(held, loaded, ids)
        assert waited.is_set()
        assert tier.counters.missed == 1


async def test_a_conversation_that_was_closed_is_forgotten_with_its_last_archive(
    hosts: TinyHosts,
):
    async with hosts.host() as host:
        gone = ConversationId(b"?" * 32)
        host.hub_tier._kept[gone] = []
        host.hub_tier._due.note_uploaded(gone, host.offer)
        assert host.hub_tier.nbytes == 0
        assert gone not in host.hub_tier._kept
        assert gone not in host.hub_tier._due._uploaded
