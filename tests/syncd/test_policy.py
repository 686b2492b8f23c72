"""The operator's policy (spec/09-trust, spec/11-limits)."""

from replica import limits
from syncd.policy import Policy
from tests.support.writers import Writer

ADA, BOB = Writer(1).public, Writer(2).public


def test_every_key_may_create_unless_creators_are_named() -> None:
    assert Policy().may_create(ADA)
    named = Policy(creators=frozenset({ADA}))
    assert (named.may_create(ADA), named.may_create(BOB)) == (True, False)


def test_an_empty_list_of_creators_allows_no_key() -> None:
    assert not Policy(creators=frozenset()).may_create(ADA)


def test_a_hub_vouches_for_named_hosts_alone() -> None:
    assert not Policy().vouches_for(ADA)
    policy = Policy(host_keys=frozenset({ADA}))
    assert (policy.vouches_for(ADA), policy.vouches_for(BOB)) == (True, False)


def test_creators_and_vouched_hosts_are_independent() -> None:
    policy = Policy(creators=frozenset({ADA}), host_keys=frozenset({BOB}))
    assert not policy.may_create(BOB)
    assert not policy.vouches_for(ADA)


def test_the_quotas_default_to_the_limits_of_the_specification() -> None:
    assert Policy().pending_bytes_max == limits.PENDING_BYTES_MAX
