"""The profile a request names, and the sampling it begins with (spec/07-host §1). Pure.

What stands in the REQUEST is decided here, by the client that writes it: what its user
states, else the conversation's default, else what the host recommends for the profile.
"""

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


def named_profile(profiles: Sequence[ProfileInfo], text: str) -> ProfileInfo:
    """Return the profile with this name, or whose digest begins with these hex digits.

    Raises ArgumentInvalid unless it is exactly one.
    """
    found = [profile for profile in profiles if profile.name == text]
    found = found or [profile for profile in profiles if profile.digest.hex().startswith(text)]
    if len(found) != 1:
        names = ", ".join(f"{profile.name} {short(profile.digest)}" for profile in profiles)
        problem = "is the name of several profiles" if found else "is no profile"
        raise ArgumentInvalid(f"'{text}' {problem} of the host; it has {names or 'no link now'}")
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
