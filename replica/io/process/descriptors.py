"""The descriptors of a daemon's process, and the calls that they allow (LIM-14)."""

import resource

from replica import limits


def allow_descriptors(wanted: int = limits.CALLS_SHARE * limits.STREAMS_MAX) -> int:
    """Raise the limit of open files towards `wanted`; return the limit.

    The system's default, 1,024 in many places, is what a few hundred connections use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        soft = max(soft, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def calls_allowed(descriptors: int) -> int:
    """Return how many streams, and how many transfers, so many descriptors allow."""
    return max(1, min(limits.STREAMS_MAX, descriptors // limits.CALLS_SHARE))


def connections_allowed(descriptors: int, addresses: int) -> int:
    """Return how many connections each address may have: together half of the descriptors."""
    return max(1, descriptors // 2 // addresses)
