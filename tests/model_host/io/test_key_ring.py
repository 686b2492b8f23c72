"""The key ring that an operator names: made at the first start, and missed later on."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from model_host.io.files.key_ring import KeyRing, KeyRingMissing, RingSecretInvalid
from replica.io.files.key_refusals import SecretInvalid
from tests.model_host.io.tiny_hosts import tiny_hosts

pytestmark = pytest.mark.usefixtures("own_cache")


def test_a_named_ring_is_made_where_nothing_is_stored_and_said_so(tmp_path: Path) -> None:
    ring, checkpoints = tmp_path / "ring", tmp_path / "checkpoints"
    with capture_logs() as logs:
        made = KeyRing.load_named(ring, checkpoints)
        checkpoints.mkdir()
        assert KeyRing.load_named(ring, checkpoints) == made
    assert [(line["event"], line["path"]) for line in logs] == [("key ring made", str(ring))]


def test_a_named_ring_with_a_secret_that_was_set_aside_gets_another_one(tmp_path: Path) -> None:
    """As `antiphon repair` says. The ring is the right one, which its other secrets show."""
    ring, stored = tmp_path / "ring", tmp_path / "checkpoints" / "of-one"
    made = KeyRing.load_named(ring, stored.parent)
    stored.mkdir(parents=True)
    (stored / "00000100-aa.manifest").touch()
    (ring / "salt.secret").unlink()
    with capture_logs() as logs:
        again = KeyRing.load_named(ring, stored.parent)
    assert [(line["log_level"], line["detail"]) for line in logs] == [("warning", "salt.secret")]
    assert (again.archive, again.checkpoint) == (made.archive, made.checkpoint)
    assert again.salt != made.salt
    (ring / "salt.secret").write_bytes(b"short")
    with pytest.raises(SecretInvalid):
        KeyRing.load_named(ring, stored.parent)


def test_a_damaged_secret_of_a_named_ring_is_refused_with_what_mends_it(tmp_path: Path) -> None:
    """`antiphon repair` does not find it in the host's folder, and the ring is no data folder."""
    ring, checkpoints = tmp_path / "ring", tmp_path / "checkpoints"
    made = KeyRing.load_named(ring, checkpoints)
    salt = ring / "salt.secret"
    salt.chmod(0o644)
    with pytest.raises(RingSecretInvalid) as caught:
        KeyRing.load_named(ring, checkpoints)
    assert "chmod 600" in caught.value.next_step
    assert "antiphon repair" not in caught.value.next_step
    salt.chmod(0o600)
    salt.write_bytes(b"short")
    with pytest.raises(RingSecretInvalid, match="has 5 bytes, not 32"):
        KeyRing.load_named(ring, checkpoints)
    salt.rename(ring / "salt.aside")
    assert KeyRing.load_named(ring, checkpoints).archive == made.archive


async def test_a_mistyped_ring_is_refused_and_another_one_is_named_as_a_cause(tmp_path: Path):
    async with tiny_hosts(tmp_path) as hosts:
        async with hosts.host() as host:
            talk = await hosts.talk("one")
            await talk.ask("hello " * 40, tokens=4)
            while host.profiles.counts.writes.written < 1:
                await host.profiles.manifests(talk.id)
        checkpoints = tmp_path / "one" / "derived" / "checkpoints"
        manifests = list(checkpoints.glob("*/*.manifest"))
        with pytest.raises(KeyRingMissing, match="rnig has no key ring"):
            async with hosts.host(ring="rnig"):
                pass
        assert not (tmp_path / "rnig").exists()
        assert list(checkpoints.glob("*/*.manifest")) == manifests
        KeyRing.load(tmp_path / "other")
        with capture_logs() as logs:
            async with hosts.host(ring="other"):
                await talk.ask("again", tokens=4)
    (removed,) = [line for line in logs if line["event"] == "checkpoints removed"]
    assert (removed["count"], removed["path"]) == (1, str(manifests[0].parent))
    assert "of another key ring" in removed["detail"]
