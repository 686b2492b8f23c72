"""Which key a store belongs to."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.io.driver.replica import Replica
from replica.io.store.own_key import own_key_of
from replica.io.store.store import Store
from replica.log import public_key


async def test_a_store_names_the_key_that_opened_it_last(tmp_path: Path) -> None:
    path = tmp_path / "log" / "log.db"
    assert await own_key_of(path) is None
    first, second = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    for key in (first, second, second):
        async with Replica.open(path, key):
            pass
        assert await own_key_of(path) == public_key(key)


async def test_a_hub_s_store_and_one_that_can_t_be_read_name_none(tmp_path: Path) -> None:
    path = tmp_path / "log" / "log.db"
    async with await Store.open(path):
        pass
    assert await own_key_of(path) is None
    path.write_bytes(b"no store" * 1000)
    assert await own_key_of(path) is None
