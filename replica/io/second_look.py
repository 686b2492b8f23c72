"""Second looks at what a hub states of a conversation (DECISIONS D557).

A hub can ack an entry and drop it, or repeat the digest it was sent and so keep back entries of
others. No message on that link shows it. Another path may: an export of a member, or a replica
that begins anew, which the hub can't tell from a new device.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass

from replica import limits
from replica.ids import ConversationId, EntryId
from replica.io.replica import Replica


@dataclass(frozen=True, slots=True)
class SecondLook:
    """The differences between a replica in sync and one that began anew at the same hub."""

    not_served: frozenset[EntryId]
    """Entries that the hub acked and does not send to the new one."""
    kept_back: frozenset[EntryId]
    """Entries that it sends to the new one alone."""


async def kept_back(
    replica: Replica, conversation: ConversationId, ids: Collection[EntryId], timeout_s: float
) -> frozenset[EntryId]:
    """Return which of these entries, unknown here, the hub holds and does not send.

    The replica is linked and in sync. At most FETCH_IDS_MAX of them are asked for. What
    another member appends meanwhile comes over the link within `timeout_s`. Raises
    HubUnreachable, and the hub's refusal.
    """
    wanted = sorted(ids)[: limits.FETCH_IDS_MAX]
    found = {entry.id for entry in await replica.calls().fetch(conversation, wanted)}
    return await _unknown(replica, conversation, found.intersection(wanted), timeout_s)


async def look_again(
    replica: Replica, fresh: Replica, conversation: ConversationId, timeout_s: float
) -> SecondLook:
    """Compare a replica in sync with one that has just begun, and is in sync too."""
    here, there = await replica.load(conversation), await fresh.load(conversation)
    served = frozenset(there.log.covered())
    acked = [i for i in here.log.covered() if replica.hub.is_acked(conversation, i)]
    only_there = await _unknown(replica, conversation, served - here.log.entries.keys(), timeout_s)
    # A revocation may have uncovered entries since; those are sent to nobody.
    covered = here.log.covered()
    lacking = {i for i in acked if i not in served and i in covered}
    later = await _unknown(fresh, conversation, lacking, timeout_s)
    return SecondLook(later, only_there)


async def _unknown(
    replica: Replica, conversation: ConversationId, ids: Set[EntryId], timeout_s: float
) -> frozenset[EntryId]:
    """Return those of these entries that do not come within `timeout_s`."""
    entries = (await replica.load(conversation)).log.entries
    await replica.wait_for(lambda: ids <= entries.keys(), timeout_s)
    return frozenset(ids - entries.keys())
