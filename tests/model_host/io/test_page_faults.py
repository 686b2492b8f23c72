"""Stored pages that are damaged, moved or wrong: refused, computed again, counted; same tokens.

Each fault passes through a whole host: real hub, replica and model.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from blake3 import blake3

from model_host.kv.checkpoint import decode_manifest, encode_manifest
from replica.log.body import Generation, Sampling
from tests.model_host.io.damage import flip_at
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.talk import Talk

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
LONG = "Tell me of the sea. " * 16


def flipped(own: Path, _other: Path) -> None:
    flip_at(own, own.stat().st_size // 2)


def swapped(own: Path, _other: Path) -> None:
    """The first two groups change places, as after a wrong seek."""
    data = own.read_bytes()
    (manifest,) = own.parent.glob("*.manifest")
    size = _group_bytes(own, manifest)
    own.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])


def truncated(own: Path, _other: Path) -> None:
    own.write_bytes(own.read_bytes()[:-1])


def of_another_conversation(own: Path, other: Path) -> None:
    """The same owner's other conversation, under this one's manifest."""
    shutil.copy(other, own)


def replayed_whole(own: Path, other: Path) -> None:
    """Another conversation's checkpoint with its manifest, whose MAC is right."""
    shutil.rmtree(own.parent)
    shutil.copytree(other.parent, own.parent)


def of_another_namespace(own: Path, _other: Path) -> None:
    """As if another owner, model or numerics class had written all of it."""
    host = own.parents[3]
    (host / "salt.secret").write_bytes(b"another salt".ljust(32))


def _group_bytes(pack: Path, manifest: Path) -> int:
    key = (pack.parents[3] / "checkpoint.secret").read_bytes()
    return decode_manifest(manifest.read_bytes(), key).pieces[0].length


def pack_of(served: ServedHost, talk: Talk) -> Path:
    (pack,) = (served.checkpoints / sha256(talk.id).hexdigest()).glob("*.pack")
    return pack


@pytest.mark.parametrize(
    ("damage", "counted"),
    [
        (flipped, 1),
        (swapped, 1),
        (truncated, 1),
        (of_another_conversation, 1),
        # No check fails: these are checkpoints, of other tokens or for another namespace.
        (replayed_whole, 0),
        (of_another_namespace, 0),
    ],
)
async def test_a_damaged_or_moved_page_is_refused_and_computed_again(
    served: ServedHost, damage: Callable[[Path, Path], None], counted: int
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        other = await Talk.begin(served.replica, host.key)
        await talk.ask(LONG, tokens=4, sampling=SEEDED)
        await other.ask(f"A question. {LONG}", tokens=4, sampling=SEEDED)
        await served.kept(talk, host, 2)
    damage(pack_of(served, talk), pack_of(served, other))
    async with served.host() as host:
        request, answer = await talk.ask("Go on.", tokens=6, sampling=SEEDED)
        counters = host.thread.counts.batch
        assert (counters.restores, counters.fallbacks) == (0, counted)
        assert answer.usage.prefilled_tokens == answer.usage.prompt_tokens
        # What is stored now is right: it gives the same tokens.
        await served.kept(talk, host, 1)
    async with served.host() as host:
        again = await talk.answer(await talk.regenerate(request))
        assert host.thread.counts.batch.restores == 1
        await until(lambda: host.thread.counts.audits.audited > 0)
        assert host.thread.counts.audits.mismatches == 0
    assert again.token_ids == answer.token_ids


async def test_a_wrong_page_with_a_right_mac_is_found_by_the_audit(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=4, sampling=SEEDED)
        request, right = await talk.ask("Name another.", tokens=4, sampling=SEEDED)
        await served.kept(talk, host, 2)
    plant_wrong_byte(served, talk)
    async with served.host() as host:
        await talk.answer(await talk.regenerate(request))
        assert host.thread.counts.batch.restores == 1
        await until(lambda: host.thread.counts.audits.audited > 0)  # once the host is idle
        assert host.thread.counts.audits.mismatches == 1
        await host.thread.evict(talk.id, checkpoints=False)
        computed = await talk.answer(await talk.regenerate(request))
        assert host.thread.counts.batch.restores == 1
    assert_computed(computed, right)


def assert_computed(answer: Generation, right: Generation) -> None:
    assert answer.usage.prefilled_tokens == answer.usage.prompt_tokens
    assert answer.token_ids == right.token_ids


def plant_wrong_byte(served: ServedHost, talk: Talk) -> None:
    """Change a byte of each stored piece, with digests and MACs made by the host's own key."""
    pack = pack_of(served, talk)
    key = (served.folder / "host" / "checkpoint.secret").read_bytes()
    data = bytearray(pack.read_bytes())
    manifests = [decode_manifest(p.read_bytes(), key) for p in pack.parent.glob("*.manifest")]
    for offset in {piece.offset for manifest in manifests for piece in manifest.pieces}:
        data[offset] ^= 4
    pack.write_bytes(data)
    for path in pack.parent.glob("*.manifest"):
        manifest = decode_manifest(path.read_bytes(), key)
        pieces = tuple(
            replace(p, blake3=blake3(data[p.offset : p.offset + p.length]).digest())
            for p in manifest.pieces
        )
        path.write_bytes(encode_manifest(replace(manifest, pieces=pieces), key))
