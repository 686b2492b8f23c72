"""Hello and Welcome: versions, hosts, the hub's key (spec/04-link §4)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.ids import Digest
from replica.link import greeting
from replica.link.messages import Hello, HostInfo, ProfileInfo
from replica.log.body import LogitBias, Sampling
from replica.refusals import ArgumentInvalid, ProofInvalid, VersionUnsupported
from tests.support.writers import Writer

HOST, HUB = Writer(1).public, Writer(2).public
PROFILE = ProfileInfo(Digest(bytes(32)), "p" * limits.HOST_TEXT_BYTES_MAX, 4096)
INFO = HostInfo(HOST, "a" * limits.HOST_TEXT_BYTES_MAX, (PROFILE,) * limits.HOST_PROFILES_MAX)


@pytest.mark.parametrize("versions", [(1,), (0, 1), (2, 1)])
def test_one_version_in_common_is_enough(versions: tuple[int, ...]) -> None:
    greeting.check_versions(Hello(versions))


@pytest.mark.parametrize("versions", [(), (2,), (0, 3)])
def test_without_a_common_version_there_is_no_link(versions: tuple[int, ...]) -> None:
    with pytest.raises(VersionUnsupported):
        greeting.check_versions(Hello(versions))


def test_a_host_at_its_limits_is_accepted() -> None:
    greeting.check_host(INFO, HOST)


@pytest.mark.parametrize(
    "host",
    [
        replace(INFO, key=HUB),
        replace(INFO, address=INFO.address + "a"),
        replace(INFO, address="ä" * (limits.HOST_TEXT_BYTES_MAX // 2 + 1)),
        replace(INFO, profiles=(PROFILE,) * (limits.HOST_PROFILES_MAX + 1)),
        replace(INFO, profiles=(replace(PROFILE, name=PROFILE.name + "p"),)),
        replace(INFO, profiles=(replace(PROFILE, numerics=PROFILE.name + "p"),)),
    ],
    ids=["another key", "long address", "not characters", "profiles", "long name", "numerics"],
)
def test_a_host_beyond_its_limits_is_refused(host: HostInfo) -> None:
    with pytest.raises(ArgumentInvalid):
        greeting.check_host(host, HOST)


def test_a_host_needs_a_proof() -> None:
    with pytest.raises(ArgumentInvalid):
        greeting.check_host(INFO, None)


def test_a_welcome_states_the_hubs_limits() -> None:
    welcome = greeting.welcome(HUB)
    assert (welcome.version, welcome.hub_key, welcome.hosts) == (1, HUB, ())
    assert welcome.frame_bytes_max == limits.FRAME_BYTES_MAX
    assert welcome.credit_bytes == limits.CREDIT_BYTES
    assert welcome.idle_timeout_ms == limits.IDLE_TIMEOUT_S * 1000


def test_a_hub_greets_with_the_key_it_proved() -> None:
    welcome = greeting.welcome(HUB)
    greeting.check_hub(welcome, HUB)
    greeting.check_hub(welcome, None)  # a first contact, pinned elsewhere
    with pytest.raises(ProofInvalid):
        greeting.check_hub(welcome, HOST)


def test_a_welcome_of_another_version_is_refused() -> None:
    with pytest.raises(VersionUnsupported):
        greeting.check_hub(replace(greeting.welcome(HUB), version=9), HUB)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(seed=1),
        Sampling(logit_bias=(LogitBias(token_id=1, bias=2.0),)),
        Sampling(temperature=-1.0),
        Sampling(temperature=float("nan")),
        Sampling(top_p=1.5),
    ],
)
def test_recommended_sampling_that_no_request_may_have_is_refused(sampling: Sampling) -> None:
    advised = replace(PROFILE, sampling=Sampling(temperature=0.2, top_p=0.9))
    greeting.check_host(replace(INFO, profiles=(advised,)), HOST)
    with pytest.raises(ArgumentInvalid, match="recommended sampling"):
        greeting.check_host(
            replace(INFO, profiles=(PROFILE, replace(PROFILE, sampling=sampling))), HOST
        )
