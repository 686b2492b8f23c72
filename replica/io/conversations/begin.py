"""The beginning of a conversation, and the defaults of its requests, for every caller.

The command and the library choose hosts and seeds by these functions alone.
"""

import os
import time
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

from replica.conversation import (
    Conversation,
    check_not_removed,
    check_owner_stays,
    newest_place,
    removal_to_write,
)
from replica.errors import with_step
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io.conversations.issued_invitations import ISSUED, note_grant
from replica.io.driver import Replica, any_vouched, means_away
from replica.io.process import get_logger
from replica.io.requests import RequestOptions, choose_host, learn_hosts, say_as_system
from replica.link import (
    HostChoice,
    host_to_grant,
    named_profile,
    profiles_of,
    sampling_to_state,
)
from replica.log import (
    TOKENS_MAX,
    Genesis,
    Grant,
    Member,
    Role,
    Sampling,
    range_fault,
    sampling_fault,
)
from replica.refusals import ArgumentInvalid, NoHost, NotAllowed

_log = get_logger()

SEED_BITS = 63
HUB_WAIT_S = 5.0
HOST_BACK_S = 7.5
"""Time in which a host is linked again to a hub that was restarted: 1.5 times RECONNECT_MAX_S."""
LOOK_S = 0.5
OUTPUT_TOKENS_MAX = 512
"""Output tokens of an answer where nobody states a limit; one that was cut off can go on."""


async def choose_host_to_grant(
    replica: Replica,
    named: PublicKey | None,
    pinned: PublicKey | None,
    timeout_s: float = HUB_WAIT_S,
    back_s: float = HOST_BACK_S,
    *,
    removed: Container[PublicKey] = (),
) -> HostChoice:
    """Ask the hub for its hosts and choose the one to grant to (LINK-31).

    A host in `removed` is chosen only where there is no other, so that the caller can name it.
    Where the hub has none now, and vouched for one before, it is waited for `back_s` seconds.
    Neither a named host nor a pinned one is asked for: it need not be linked. While the hub is
    away, those that it named last count. Raises NoHost, caused by the hub's absence if that is
    why no host is known, and the error of a link for which the hub is there.
    """
    hub, end_s = replica.hub, time.monotonic() + timeout_s
    await replica.wait_for(lambda: hub.is_tried, timeout_s)
    if named is None and pinned is None:
        await learn_hosts(replica, end_s - time.monotonic())
        await _until_host_is_back(replica, back_s)
    try:
        hosts = sorted(hub.hosts, key=lambda host: host.key in removed)
        return host_to_grant(named, pinned, hosts)
    except NoHost as error:
        if hub.is_linked or hub.last_error is None:
            raise
        if not means_away(hub.last_error):
            raise hub.last_error from error
        away = f"{error.detail}; the hub is away [{hub.last_error.reason}]"
        raise NoHost(away) from hub.last_error


async def _until_host_is_back(replica: Replica, timeout_s: float) -> None:
    """Wait for a host of a hub that vouched for one: a hub that was restarted has none yet."""
    hub, end_s = replica.hub, time.monotonic() + timeout_s
    while (
        hub.has_vouched and not any_vouched(hub.hosts) and (left_s := end_s - time.monotonic()) > 0
    ):
        await replica.wait_for(lambda: any_vouched(hub.hosts), min(LOOK_S, left_s))
        await learn_hosts(replica)


async def begin(
    replica: Replica,
    sampling: Sampling | None,
    grants: Iterable[Grant],
    system: str | None,
    *,
    output_tokens_max: int = OUTPUT_TOKENS_MAX,
    stop: tuple[str, ...] = (),
    shares_pages: bool = False,
) -> ConversationId:
    """Create a conversation with members and a system text; durable here when it returns.

    Sampling, limit and stop strings are its defaults, for all members. `shares_pages` is
    consent for its whole life: `Genesis`. Raises ArgumentInvalid for a number out of its range.
    """
    _check(sampling, output_tokens_max)
    body = Genesis((replica.public,), sampling, output_tokens_max, stop, shares_pages)
    created = await replica.create(body)
    for one in grants:
        await grant(replica, created, one)
    if system is not None:
        await say_as_system(replica, created, system, newest_place(await replica.load(created)))
    return created


async def grant(replica: Replica, conversation: ConversationId, change: Grant) -> None:
    """Give a key a role. Raises NotAllowed unless this replica's key is an owner.

    Raises KeyRemoved for a key that was removed, and nothing is written.
    Open invitations know of the grant: it says nothing about their redemption elsewhere.
    """
    async with replica.processes.changing(ISSUED):
        held = await replica.load(conversation)
        check_not_removed(held, change.key)
        await note_grant(replica.store, conversation, change)
        heads = held.log.membership_heads() or (EntryId(conversation),)
        await replica.append(conversation, Member(change), parents=heads)


async def grant_to_host(replica: Replica, conversation: ConversationId, choice: HostChoice) -> None:
    """Grant a conversation to the host that was chosen, and log which it is and why.

    Raises NotAllowed unless this replica's key is an owner.
    """
    await grant(replica, conversation, Grant(choice.key, Role.HOST))
    _log.info(
        "conversation granted to a host",
        conversation=short(conversation),
        key=short(choice.key),
        reason=choice.reason.value,
    )


async def remove(
    replica: Replica, conversation: ConversationId, key: PublicKey, *, leave_ownerless: bool = False
) -> None:
    """Revoke a key for good; what it wrote and is held here stays.

    Raises ArgumentInvalid for a key removed before, and NotAllowed unless this replica's key
    is an owner senior to it. Any key may remove itself; the last owner alone with
    `leave_ownerless`, else it raises LastOwner.
    """
    held = await replica.load(conversation)
    _require_junior(held, replica.public, key)
    if not leave_ownerless:
        check_owner_stays(held, key)
    change, parents = removal_to_write(held, replica.public, key)
    await replica.append(conversation, change, parents=parents)


def _require_junior(held: Conversation, ours: PublicKey, theirs: PublicKey) -> None:
    """Raise NotAllowed unless our revocation of a key would count."""
    membership = held.log.membership
    if theirs in membership.kept:
        raise ArgumentInvalid(f"{short(theirs)} was removed before")
    if theirs not in membership.ranks:
        raise ArgumentInvalid(f"{short(theirs)} is no member")
    if ours == theirs:
        return  # resigning
    if not membership.is_owner(ours) or membership.ranks[ours] >= membership.ranks[theirs]:
        raise with_step(
            NotAllowed(f"only an owner senior to {short(theirs)} can remove it"),
            "Ask an owner senior to it, such as the first one, or ask its holder to leave: anyone"
            " may run `antiphon members remove KEY` with their own key.",
        )


async def learn_hosts_of(
    replica: Replica, held: Conversation, *, profile: str | None = None
) -> None:
    """Ask the hub for its hosts where `request_options` depends on more than is known of them.

    That is where one of several is to be chosen, or one that was not linked when the hub named
    them last is asked, and where a profile is named. Raises ReplicaClosed.
    """
    asked = held.log.membership.hosts()
    known = {one.key for one in replica.hub.hosts}
    if len(asked) > 1 or profile is not None or not known.issuperset(asked):
        await learn_hosts(replica)


def request_options(
    replica: Replica,
    held: Conversation,
    *,
    host: PublicKey | None = None,
    profile: str | None = None,
    changes: dict[str, Any] | None = None,
    output_tokens_max: int | None = None,
    stop: tuple[str, ...] | None = None,
    **limits: Any,
) -> RequestOptions:
    """Return the options of a request for a host's `profile`, by name: sampling and `limits`.

    The sampling is the conversation's, else the one that the host recommends, with `changes`.
    Limit and stop strings default to the conversation's; the limit else to OUTPUT_TOKENS_MAX.
    Without a seed a random one is drawn, so that every answer can be reproduced. The hosts are
    those that the hub named last: `learn_hosts_of` comes first. Raises HostMissing, or
    ArgumentInvalid for a profile that the host does not offer and for a number out of its range.
    """
    linked = replica.hub.hosts
    asked = choose_host(held, tuple(known.key for known in linked), host)
    profiles = profiles_of(linked, asked)
    wanted = named_profile(profiles, profile).digest if profile is not None else None
    genesis = held.log.body(EntryId(held.id))
    begun = genesis if isinstance(genesis, Genesis) else Genesis(())
    default = begun.default_sampling
    sampling = replace(sampling_to_state(default, profiles, wanted), **(changes or {}))
    if output_tokens_max is None:
        output_tokens_max = begun.default_output_tokens_max or OUTPUT_TOKENS_MAX
    _check(sampling, output_tokens_max)
    limits |= {
        "output_tokens_max": output_tokens_max,
        "stop": begun.default_stop if stop is None else stop,
    }
    if not sampling.seed:
        seed = int.from_bytes(os.urandom(8), "little") >> (64 - SEED_BITS) or 1
        sampling = replace(sampling, seed=seed)
    return RequestOptions(asked, sampling, profile=wanted, **limits)


def _check(sampling: Sampling | None, output_tokens_max: int) -> None:
    fault = range_fault("max_tokens", output_tokens_max, 0, TOKENS_MAX)
    if fault is None and sampling is not None:
        fault = sampling_fault(sampling)
    if fault is not None:
        raise ArgumentInvalid(fault)
