"""Sharing domains: equal for equal readers of one owner, and for nobody else."""

import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.kv.domain import domain_salt
from model_host.kv.lineage import Lineage

OWNER, FRIEND, OTHER = b"o" * 32, b"f" * 32, b"x" * 32
SALT = b"s" * 32


def test_equal_readers_have_one_domain_in_any_order() -> None:
    assert domain_salt(SALT, [OWNER, FRIEND]) == domain_salt(SALT, [FRIEND, OWNER, OWNER])
    assert len(domain_salt(SALT, [OWNER])) == 32


def test_other_readers_and_other_owners_have_another_domain() -> None:
    readers = [(), (OWNER,), (FRIEND,), (OWNER, FRIEND), (OWNER, FRIEND, OTHER), None]
    salts = {domain_salt(salt, each) for salt in (SALT, b"t" * 32) for each in readers}
    assert len(salts) == 2 * len(readers)


def test_keys_do_not_run_into_each_other() -> None:
    with pytest.raises(AssertionError):
        domain_salt(SALT, [b"o" * 31, b"of" * 16])


def test_domains_have_no_lineage_key_in_common(tiny: TorchEngine) -> None:
    ids = list(range(40))
    keys = set()
    for readers in ([OWNER], [OWNER, FRIEND], None):
        namespace = tiny.namespace(domain_salt(SALT, readers)).digest
        lineage = Lineage(namespace, ids)
        keys |= {lineage.at(tokens) for tokens in range(41)}
    assert len(keys) == 3 * 41
