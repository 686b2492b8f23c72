"""Hosts a hub vouches for: named by its operator, not by hosts, and never stored."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from antiphon.v1 import sync_pb2
from replica.ids import PublicKey
from replica.limits import HOSTS_MAX
from replica.link.codec import host_to_pb
from replica.link.messages import Hello, HostInfo, Welcome
from syncd.io.config import HubConfig
from tests.antiphon.cli.processes import ROOT
from tests.support.callers import RawLink, serve_hub
from tests.support.writers import Writer

OWNER, STRANGER = Writer(1).public, Writer(9).public
"""The keys of the callers of a served hub."""
A, B = "aa" * 32, "bb" * 32


def host_hello(key: PublicKey) -> Hello:
    return Hello((1,), host=HostInfo(key, "", ()))


def set_all(message: bytes) -> bytes:
    """Set every field with a number below 16 to 1, whether it is known or not."""
    return message + b"".join(bytes([number << 3, 1]) for number in range(1, 16))


def framed(number: int, message: bytes) -> bytes:
    """Wrap a message of less than 16 KiB as a field."""
    size = bytes([len(message) & 0x7F | 0x80, len(message) >> 7])
    return bytes([number << 3 | 2]) + size + message


def claiming(key: PublicKey) -> bytes:
    """Return a Hello that claims all a host could claim."""
    host = set_all(host_to_pb(HostInfo(key, "", ())).SerializeToString())
    hello = set_all(sync_pb2.Hello(versions=[1]).SerializeToString()) + framed(4, host)
    frame = framed(1, hello)
    assert sync_pb2.LinkRequest.FromString(frame).hello.host.key == key
    return frame


async def welcomed(link: RawLink) -> list[tuple[PublicKey, bool]]:
    welcome = await link.read()
    assert isinstance(welcome, Welcome)
    return [(host.key, host.vouched) for host in welcome.hosts]


async def test_no_host_vouches_for_itself(tmp_path: Path):
    async with serve_hub(tmp_path, host_keys=[OWNER.hex()]) as served:
        claimant, vouched = served.stranger.link(), served.owner.link()
        await claimant.call.write(claiming(STRANGER))
        assert await welcomed(claimant) == [(STRANGER, False)]
        await vouched.send(host_hello(OWNER))
        assert await welcomed(vouched) == [(OWNER, True), (STRANGER, False)]


async def test_vouching_is_not_stored(tmp_path: Path):
    for host_keys, vouched in (([OWNER.hex()], True), ([], False)):
        async with serve_hub(tmp_path, host_keys=host_keys) as served:
            link = served.owner.link()
            await link.send(host_hello(OWNER))
            assert await welcomed(link) == [(OWNER, vouched)]


# --- the operator's settings ---------------------------------------------------------


def test_host_keys_are_given_by_flag_as_often_as_need_be(tmp_path: Path):
    argv = [sys.executable, "-m", "syncd", "--host-key", A, "--host-key", B, "--print-config"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        argv, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert HubConfig.model_validate_json(done.stdout).host_keys == [A, B]


def test_host_keys_are_given_by_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert HubConfig().host_keys == []
    (tmp_path / "hub.toml").write_text(f'host_keys = ["{A}"]\n')
    assert HubConfig().host_keys == [A]
    monkeypatch.setenv("ANTIPHON_HUB_HOST_KEYS", f'["{B}"]')
    assert HubConfig().host_keys == [B]


@pytest.mark.parametrize(
    ("host_keys", "words"),
    [
        ([A, "aa"], "'aa' is not a key"),
        ([f"{number:064x}" for number in range(HOSTS_MAX + 1)], "at most 64 items"),
    ],
)
def test_host_keys_are_keys_and_no_more_than_a_welcome_names(host_keys: list[str], words: str):
    with pytest.raises(ValidationError, match=words):
        HubConfig(host_keys=host_keys)
