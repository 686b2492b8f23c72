"""The profile a request names, and the sampling it begins with (spec/07-host §1). Pure.

What stands in the REQUEST is decided here, by the client that writes it: what its user
states, else the conversation's default, else what the host recommends for the profile.
"""

from collections import Counter
from collections.abc import Sequence

from replica.ids import Digest, PublicKey, short
from replica.link.messages import LinkedHost, ProfileInfo
from replica.log import Sampling
from replica.refusals import ArgumentInvalid

UNADVISED = Sampling(temperature=0.2, top_p=0.9)
"""Where nobody states a sampling and the host's recommendation is not known: nearly greedy."""


def profiles_of(linked: Sequence[LinkedHost], host: PublicKey) -> tuple[ProfileInfo, ...]:
    """Return the profiles of a host, the default first; none where it is not linked."""
    return next((each.info.profiles for each in linked if each.key == host), ())


def profile_names(profiles: Sequence[ProfileInfo]) -> tuple[str, ...]:
    """Return the name to show for each profile of a host.

    Where several have one name, their numerics stand behind it, and where these are the same
    too, digits of their digests.
    """
    names = _names(profiles)
    counts = Counter(names)
    shown = zip(names, profiles, strict=True)
    return tuple(n if counts[n] == 1 else f"{n} {short(p.digest)}" for n, p in shown)


def listed_profiles(profiles: Sequence[ProfileInfo]) -> str:
    """Return names and digests of profiles, for an error; empty for none."""
    listed = zip(_names(profiles), profiles, strict=True)
    return ", ".join(f"{name} {short(profile.digest)}" for name, profile in listed)


def _names(profiles: Sequence[ProfileInfo]) -> list[str]:
    counts = Counter(profile.name for profile in profiles)
    return [p.name if counts[p.name] == 1 else _with_numerics(p) for p in profiles]


def _with_numerics(profile: ProfileInfo) -> str:
    return f"{profile.name}@{profile.numerics}" if profile.numerics else profile.name


def named_profile(profiles: Sequence[ProfileInfo], text: str) -> ProfileInfo:
    """Return the profile that a text names: a name, NAME@NUMERICS, or digits of a digest.

    Raises ArgumentInvalid unless it is exactly one.
    """
    found = [profile for profile in profiles if profile.name == text]
    found = found or [profile for profile in profiles if _with_numerics(profile) == text]
    found = found or [profile for profile in profiles if profile.digest.hex().startswith(text)]
    if len(found) != 1:
        problem = "is the name of several profiles" if found else "is no profile"
        names = listed_profiles(profiles) or "no link now"
        raise ArgumentInvalid(f"'{text}' {problem} of the host; it has {names}")
    return found[0]


def sampling_to_state(
    default: Sampling | None, profiles: Sequence[ProfileInfo], wanted: Digest | None
) -> Sampling:
    """Return the sampling of a request whose user states none.

    `default` is the conversation's, `profiles` are the host's, `wanted` is the profile that
    the request names.
    """
    if default is not None:
        return default
    digests = (wanted,) if wanted is not None else tuple(p.digest for p in profiles[:1])
    advised = (profile.sampling for profile in profiles if profile.digest in digests)
    return next(advised, None) or UNADVISED
