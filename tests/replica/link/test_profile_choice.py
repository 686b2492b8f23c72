"""A request's profile is found by name or digest; its sampling is stated, default or advised."""

from dataclasses import replace

import pytest

from replica.ids import Digest, PublicKey, short
from replica.link.messages import HostInfo, LinkedHost, ProfileInfo
from replica.link.profile_choice import (
    UNADVISED,
    named_profile,
    profile_names,
    profiles_of,
    sampling_to_state,
)
from replica.log.body import Sampling
from replica.refusals import ArgumentInvalid

HOST, OTHER = PublicKey(b"h" * 32), PublicKey(b"o" * 32)
WARM, COOL = Sampling(temperature=0.9), Sampling(temperature=0.1)
SMALL = ProfileInfo(Digest(bytes([0xAA]) * 32), "Small", 100, WARM)
LARGE = ProfileInfo(Digest(bytes([0xAB]) * 32), "Large", 200, COOL)
PLAIN = ProfileInfo(Digest(bytes([0xC0]) * 32), "Plain", 300)
PROFILES = (SMALL, LARGE, PLAIN)
LINKED = (LinkedHost(HostInfo(OTHER, "", ())), LinkedHost(HostInfo(HOST, "", PROFILES)))


def test_the_profiles_of_a_host_are_those_it_is_linked_with() -> None:
    assert profiles_of(LINKED, HOST) == PROFILES
    assert profiles_of(LINKED, OTHER) == ()
    assert profiles_of((), HOST) == ()


@pytest.mark.parametrize(("text", "found"), [("Large", LARGE), ("ab", LARGE), ("aaaa", SMALL)])
def test_a_profile_is_found_by_its_name_or_the_beginning_of_its_digest(
    text: str, found: ProfileInfo
) -> None:
    assert named_profile(PROFILES, text) == found


@pytest.mark.parametrize("text", ["a", "", "large", "Huge", "ff"])
def test_a_text_that_is_not_exactly_one_profile_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(ArgumentInvalid, match=r"Small aaaaaaaa.*Large abababab.*Plain c0c0c0c0"):
        named_profile(PROFILES, text)


def test_two_profiles_of_one_name_are_named_by_digest() -> None:
    twins = (SMALL, ProfileInfo(LARGE.digest, "Small", 1))
    with pytest.raises(ArgumentInvalid, match="several"):
        named_profile(twins, "Small")
    assert named_profile(twins, "ab").digest == LARGE.digest
    assert profile_names(twins) == (f"Small {short(SMALL.digest)}", f"Small {short(LARGE.digest)}")


def test_two_numerics_of_one_model_are_told_apart_and_named_as_they_are_offered() -> None:
    four, full = replace(SMALL, numerics="q4"), replace(LARGE, name="Small", numerics="bf16")
    both = (four, full, PLAIN)
    assert profile_names(both) == ("Small@q4", "Small@bf16", "Plain")
    for profile, name in zip(both, profile_names(both), strict=True):
        assert named_profile(both, name) == profile
    with pytest.raises(ArgumentInvalid, match=r"several.*Small@q4 aaaa.*Small@bf16 abab.*Plain c"):
        named_profile(both, "Small")
    assert named_profile((four, PLAIN), "Small@q4") == four


def test_a_name_with_the_mark_of_numerics_in_it_is_a_name_first() -> None:
    odd, four = replace(LARGE, name="Small@q4"), replace(SMALL, numerics="q4")
    assert named_profile((four, odd), "Small@q4") == odd


def test_the_conversations_default_wins_over_the_recommendation() -> None:
    own = Sampling(temperature=0.5)
    assert sampling_to_state(own, PROFILES, LARGE.digest) == own


def test_the_recommendation_is_that_of_the_profile_asked() -> None:
    assert sampling_to_state(None, PROFILES, None) == WARM
    assert sampling_to_state(None, PROFILES, LARGE.digest) == COOL


def test_without_a_recommendation_the_client_states_its_own() -> None:
    assert sampling_to_state(None, PROFILES, PLAIN.digest) == UNADVISED
    assert sampling_to_state(None, (), None) == UNADVISED
