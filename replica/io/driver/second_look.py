"""Second looks at what a hub states of a conversation (DECISIONS D557).

A hub can ack an entry and drop it, or repeat the digest it was sent and so keep back entries of
others. No message on that link shows it. Another path may: an export of a member, or a replica
that begins anew, which the hub can't tell from a new device.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass
from functools import partial

from replica import limits
from replica.ids import ConversationId, EntryId
from replica.io.driver.replica import Replica


@dataclass(frozen=True, slots=True)
class SecondLook:
    """The differences between a replica in sync and one that began anew at the same hub."""

    not_served: frozenset[EntryId]
    """Entries that the hub acked and does not send to the new one, or without their bodies."""
    kept_back: frozenset[EntryId]
    """Entries that it sends to the new one alone."""

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self.not_served or self.kept_back)

    def both(self, other: "SecondLook") -> "SecondLook":
        """Return the differences that another look found too."""
        return SecondLook(self.not_served & other.not_served, self.kept_back & other.kept_back)


async def held_at_hub(
    replica: Replica, conversation: ConversationId, ids: Collection[EntryId], timeout_s: float
) -> frozenset[EntryId]:
    """Return which of these entries, unknown here, the hub holds and does not send.

    The replica is in sync. At most FETCH_IDS_MAX of them are asked for. What another member
    appends meanwhile comes over the link within `timeout_s`. Entries that are not covered may
    be among them, which a hub sends to nobody. Raises HubUnreachable, and the hub's refusal.
    """
    wanted = sorted(ids)[: limits.FETCH_IDS_MAX]
    found = {entry.id for entry in await replica.calls().fetch(conversation, wanted)}
    return await _unknown(replica, conversation, found.intersection(wanted), timeout_s)


async def look_again(
    replica: Replica, fresh: Replica, conversation: ConversationId, timeout_s: float
) -> SecondLook | None:
    """Compare a replica in sync with one that has just begun, and is in sync too.

    A difference counts once it is there again while both are in sync: what comes late, or
    behind a link that was lost, is none. None if they do not come in sync within `timeout_s`.
    """
    found = await _differences(replica, fresh, conversation, timeout_s)
    for one in (replica, fresh):
        is_synced = partial(one.hub.is_in_sync, conversation, one.hub.compare(conversation))
        if not await one.wait_for(is_synced, timeout_s):
            return None
    return (
        found.both(await _differences(replica, fresh, conversation, timeout_s)) if found else found
    )


async def _differences(
    replica: Replica, fresh: Replica, conversation: ConversationId, timeout_s: float
) -> SecondLook:
    here, there = await replica.load(conversation), await fresh.load(conversation)
    acked = [i for i in here.log.covered() if replica.hub.is_acked(conversation, i)]
    served = frozenset(there.log.covered())
    only_there = await _unknown(replica, conversation, served - here.log.entries.keys(), timeout_s)
    # A revocation may have uncovered entries since; those are sent to nobody.
    covered = here.log.covered()
    lacking = frozenset(i for i in acked if i not in served and i in covered)
    not_served = await _unknown(fresh, conversation, lacking, timeout_s)
    entries, copies = here.log.entries, there.log.entries
    bare = {
        i for i in acked if i in served and copies[i].body is None and entries[i].body is not None
    }
    return SecondLook(not_served | bare, only_there)


async def _unknown(
    replica: Replica, conversation: ConversationId, ids: Set[EntryId], timeout_s: float
) -> frozenset[EntryId]:
    """Return those of these entries that do not come within `timeout_s`."""
    entries = (await replica.load(conversation)).log.entries
    await replica.wait_for(lambda: ids <= entries.keys(), timeout_s)
    return frozenset(ids - entries.keys())
