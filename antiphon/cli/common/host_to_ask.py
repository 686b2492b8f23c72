"""The model host that a command asks: one named by its address, or one linked to the hub."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

import typer

from antiphon.cli.common.errors import HostNotLinked, NoHostToAsk
from antiphon.cli.common.session import Session
from antiphon.cli.views import counted
from replica.conversation import Conversation
from replica.ids import PublicKey, short
from replica.io import HostMissing, Replica, choose_host, linked_hosts, means_away, pinned_key
from replica.link import LinkedHost
from replica.refusals import HubUnreachable

HostAddressOption = Annotated[
    str | None,
    typer.Option("--host-address", metavar="HOST:PORT", help="The model host to ask."),
]


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Where a host answers, and the key it must prove; None for any."""

    address: str
    key: PublicKey | None


async def host_to_ask(
    session: Session, address: str | None, among: Collection[PublicKey] | None = None
) -> HostAddress:
    """Return the host at `address`; without one, the pinned or the first that the hub names.

    Where `among` is given, it is one of these keys. The hub is asked each time, since a
    host may return at another address. The replica's store is only read, so another process
    may hold it. Raises HostMissing without keys to be among, NoHostToAsk, and the errors of
    the hub.
    """
    if address is not None:
        return HostAddress(address, None)
    if among is not None and not among:
        raise HostMissing
    hub_key = None
    if session.has_store():
        async with session.reading() as store:
            hub_key = await pinned_key(store, session.settings.hub)
    hosts = await linked_hosts(session.settings.hub, session.key(), hub_key)
    found = [
        host for host in hosts if host.info.has_service and (among is None or host.key in among)
    ]
    pinned = session.settings.host_key
    found.sort(key=lambda host: host.key != pinned)
    if not found:
        raise NoHostToAsk(_why_none(hosts, among))
    return HostAddress(found[0].info.address, found[0].key)


def linked_host(replica: Replica, held: Conversation, wanted: PublicKey | None) -> LinkedHost:
    """Return the linked host of a conversation to ask: `wanted`, else the first that answers.

    Raises HubUnreachable or why else there is no link, HostNotLinked, HostMissing.
    """
    if not replica.hub.is_linked:
        error = replica.hub.last_error
        if error is not None and not means_away(error):
            raise error
        raise HubUnreachable("the hub that names the hosts is away")
    answering = {host.key: host for host in replica.hub.hosts if host.info.has_service}
    key = choose_host(held, tuple(answering), wanted)
    if key not in answering:
        raise HostNotLinked(f"{short(key)} is not linked to the hub, or answers no questions")
    return answering[key]


def _why_none(hosts: Collection[LinkedHost], among: Collection[PublicKey] | None) -> str:
    if among is None:
        if not hosts:
            return "no model host is linked to the hub"
        linked = counted(len(hosts), "model host is", "model hosts are")
        return f"{linked} linked to the hub, and none answers questions"
    names = ", ".join(sorted(map(short, among)))
    return f"no host of the conversation ({names}) is linked to the hub and answers questions"
