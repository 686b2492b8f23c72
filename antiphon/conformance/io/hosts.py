"""The model host under test: the one a hub names."""

import asyncio

from antiphon.conformance.cases import NotApplicable
from antiphon.conformance.io.member import Member
from antiphon.v1 import sync_pb2 as pb
from replica.ids import PublicKey
from replica.link import HostInfo, Welcome, decode_frame

LINK_S = 5.0
RETRY_S = 0.1


async def host_of(member: Member, wanted: PublicKey | None = None) -> HostInfo:
    """Return the wanted host, or the first that is linked to the member's hub.

    A host that starts may link in a moment. Raises NotApplicable where none does.
    """
    for _ in range(round(LINK_S / RETRY_S)):
        if (found := await _linked(member, wanted)) is not None:
            return found
        await asyncio.sleep(RETRY_S)
    raise NotApplicable(f"no such host was linked to the hub for {LINK_S:.0f} s")


async def _linked(member: Member, wanted: PublicKey | None) -> HostInfo | None:
    answer = await member.call("Hosts", pb.HostsRequest())
    # A Welcome carries the same list, and has a decoder.
    raw = pb.LinkResponse(welcome=pb.Welcome(hub_key=member.hub_key, hosts=answer.hosts))
    welcome = decode_frame(raw.SerializeToString(), "to_client")
    assert isinstance(welcome, Welcome), "it was encoded as one"
    return next((h.info for h in welcome.hosts if wanted in (None, h.key)), None)


def service_of(host: HostInfo) -> str:
    """Return the address of a host's HostService. Raises NotApplicable where it has none."""
    if not host.address:
        raise NotApplicable("the host has no HostService")
    return host.address
