"""The shared document of a conversation: its title and names (spec/06-document)."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from replica.conversation import Conversation, LaneMoved, check_name, updates_of
from replica.document import EMPTY_UPDATE
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.io.driver import Replica
from replica.limits import PARENTS_MAX
from replica.log import DocumentUpdate, Join

if TYPE_CHECKING:
    from replica.document.projection import Edit

TITLE = "title"
NAME = "name "
"""Before the hex digits of a key: the name that it proposes for itself."""


def has_document(held: Conversation) -> bool:
    """Say whether anything was ever written to the document; it is not built for that."""
    return any(lane.track == Track.DOCUMENT for lane in held.log.lanes())


def title_of(held: Conversation) -> str | None:
    """Return the title, None if there is none."""
    title = held.document.projection.meta.get(TITLE) if has_document(held) else None
    return title if isinstance(title, str) else None


def title_set_by(held: Conversation, key: PublicKey) -> str | None:
    """Return the last title that a key gave, whatever others made of it since; None without one."""
    if not has_document(held):
        return None
    from replica.document import meta_set_by  # it imports pycrdt

    title = meta_set_by(key, TITLE, updates_of(held.log))
    return title if isinstance(title, str) else None


def proposed_names(held: Conversation) -> dict[PublicKey, str]:
    """Return the names that members propose for themselves; any writer can set any of them."""
    if not has_document(held):
        return {}
    meta = held.document.projection.meta
    found = {}
    for key in held.log.membership.roles:
        name = meta.get(NAME + key.hex())
        if isinstance(name, str):
            found[key] = name
    return found


def branch_names(held: Conversation) -> dict[str, EntryId]:
    """Return the names of branches, each with the seal that it stands for, if that is here."""
    if not has_document(held):
        return {}
    named = held.document.projection.branches
    seals = {name: EntryId(bytes.fromhex(seal)) for name, seal in named.items()}
    return {name: seal for name, seal in seals.items() if seal in held.order.nodes}


async def name_branch(
    replica: Replica, conversation: ConversationId, name: str, seal: EntryId
) -> None:
    """Name the branch that ends in a seal, or goes on below it. Raises ArgumentInvalid."""
    check_name(name)
    await edit(replica, conversation, lambda one: one.set_branch(name, seal))


async def propose_name(replica: Replica, conversation: ConversationId, name: str) -> None:
    """Propose a name for this replica's key to all members. Raises ArgumentInvalid."""
    check_name(name)
    key = NAME + replica.public.hex()
    await edit(replica, conversation, lambda one: one.set_meta(key, name))


async def set_title(replica: Replica, conversation: ConversationId, title: str) -> None:
    """Set the title. Raises ArgumentInvalid for one that can't be shown in a line."""
    check_name(title)
    await edit(replica, conversation, lambda one: one.set_meta(TITLE, title))


async def edit(
    replica: Replica, conversation: ConversationId, change: "Callable[[Edit], None]"
) -> None:
    """Make one edit of the document; durable here when it returns."""
    while True:
        held = await replica.load(conversation)
        heads = held.document.heads
        if len(heads) > PARENTS_MAX:
            await replica.append(conversation, Join(), parents=heads[:PARENTS_MAX])
            continue
        slot = await replica.processes.slot(conversation, Track.DOCUMENT)
        held = await replica.load(conversation)
        heads = held.document.heads
        edited = held.document.edit(slot.lane)
        change(edited)
        update = edited.update()
        if update == EMPTY_UPDATE:
            return
        with suppress(LaneMoved):  # another process of this replica was first: edit anew
            await replica.append_at(conversation, slot, DocumentUpdate(update), parents=heads)
            return
