"""The greeting of a link: Hello and Welcome (spec/04-link §4).

Pure, and private to link.py.
"""

from itertools import chain

from replica import limits
from replica.ids import PublicKey
from replica.limits import VERSION
from replica.link.messages import Hello, HostInfo, Welcome
from replica.log import sampling_fault
from replica.refusals import ArgumentInvalid, ProofInvalid, VersionUnsupported


def check_versions(hello: Hello) -> None:
    """Raise VersionUnsupported unless the client offers this hub's version."""
    if VERSION not in hello.versions:
        raise VersionUnsupported(f"this hub speaks version {VERSION}")


def check_host(host: HostInfo, peer: PublicKey | None) -> None:
    """Check the size of a host's description and that its key is the proved one (LINK-25).

    Every Welcome repeats the description. Raises ArgumentInvalid.
    """
    if host.key != peer:
        raise ArgumentInvalid("host: the key is not the one that authenticated")
    described = ((profile.name, profile.numerics) for profile in host.profiles)
    texts = (host.address, *chain.from_iterable(described))
    if len(host.profiles) > limits.HOST_PROFILES_MAX or any(
        len(text.encode()) > limits.HOST_TEXT_BYTES_MAX for text in texts
    ):
        raise ArgumentInvalid("host: too many profiles, or a text too long")
    advised = [profile.sampling for profile in host.profiles if profile.sampling is not None]
    for sampling in advised:
        if sampling.seed or sampling.logit_bias:
            raise ArgumentInvalid("host: recommended sampling has a seed or logit biases")
        if fault := sampling_fault(sampling):  # clients copy it into their requests
            raise ArgumentInvalid(f"host: recommended sampling is out of range: {fault}")


def welcome(hub: PublicKey) -> Welcome:
    """Return a hub's greeting without hosts; the hub adds the linked ones."""
    return Welcome(
        VERSION,
        hub,
        limits.FRAME_BYTES_MAX,
        limits.CREDIT_BYTES,
        int(limits.IDLE_TIMEOUT_S * 1000),
    )


def check_hub(message: Welcome, peer: PublicKey | None) -> None:
    """Check a hub's greeting: its version (LINK-3), and that its key is the proved one.

    Raises VersionUnsupported, ProofInvalid.
    """
    if message.version != VERSION:
        raise VersionUnsupported(f"the hub greets with version {message.version}")
    if peer not in (None, message.hub_key):
        raise ProofInvalid("the hub greets with another key than it proved")
