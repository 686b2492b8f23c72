"""Hosts a hub vouches for stand before strangers' hosts in every Welcome (spec/04-link §4)."""

import pytest

from replica import limits
from replica.ids import PublicKey
from replica.link.messages import Hello, HostInfo, LinkedHost, Welcome
from replica.testing import Network, Peer, of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY
from tests.support.writers import Writer

OURS, SPARE, READER = Writer(1).public, Writer(2).public, Writer(3).public
STRANGERS = [PublicKey(number.to_bytes(32, "big")) for number in range(200)]
"""Keys that begin with 00: they sort before any honest one."""


@pytest.fixture
def network() -> Network:
    return Network(Hub(HUB_KEY, Policy(host_keys=frozenset({OURS, SPARE}))))


def link_host(network: Network, key: PublicKey, address: str = "") -> Peer:
    return network.connect(key, hello=Hello((1,), host=HostInfo(key, address, ())))


def welcomed(network: Network) -> tuple[LinkedHost, ...]:
    (welcome,) = of(Welcome, network.connect(READER).received)
    hosts: tuple[LinkedHost, ...] = welcome.hosts
    return hosts


@pytest.mark.parametrize("before", [0, 1, 63, 64, 100, 200])
def test_the_vouched_host_comes_first_among_any_number_of_strangers(
    network: Network, before: int
) -> None:
    for key in STRANGERS[:before]:
        link_host(network, key)
    link_host(network, OURS)
    for key in STRANGERS[before:]:
        link_host(network, key)
    hosts = welcomed(network)
    assert len(hosts) == limits.HOSTS_MAX
    assert hosts[0] == LinkedHost(HostInfo(OURS, "", ()), vouched=True)
    assert not any(host.vouched for host in hosts[1:])


def test_within_each_group_the_longest_linked_come_first(network: Network) -> None:
    late, early = STRANGERS[0], STRANGERS[7]
    for key in (early, SPARE, late, OURS):
        link_host(network, key)
    assert [host.key for host in welcomed(network)] == [SPARE, OURS, early, late]


def test_the_age_of_a_key_is_that_of_its_oldest_link(network: Network) -> None:
    first, second = STRANGERS[:2]
    oldest = link_host(network, first)
    link_host(network, second)
    link_host(network, first, "moved:1")
    infos = [host.info for host in welcomed(network)]
    assert infos == [HostInfo(first, "moved:1", ()), HostInfo(second, "", ())]
    network.disconnect(oldest)
    assert [host.key for host in welcomed(network)] == [second, first]


def test_a_hub_without_host_keys_vouches_for_no_host() -> None:
    network = Network(Hub(HUB_KEY, Policy()))
    link_host(network, OURS)
    assert welcomed(network) == (LinkedHost(HostInfo(OURS, "", ()), vouched=False),)


def test_a_vouched_host_that_is_not_linked_is_not_named(network: Network) -> None:
    assert welcomed(network) == ()
    peer = link_host(network, OURS)
    network.disconnect(peer)
    assert welcomed(network) == ()
