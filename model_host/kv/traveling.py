"""CHECKPOINT entries: archives of derived state at the hub (spec/08-checkpoint §9). Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model_host.kv.lineage import Lineage
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.log import Checkpoint, Kind


@dataclass(frozen=True, slots=True)
class Offered:
    """One CHECKPOINT entry that counts."""

    id: EntryId
    conversation: ConversationId
    author: PublicKey
    generation: EntryId
    body: Checkpoint
    create_time_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Say whether the hub may have deleted its archive at a Unix time."""
        return 0 < self.body.expire_time_ms <= now_ms


def offered(held: Conversation) -> list[Offered]:
    """Return the checkpoints of a conversation that its hosts wrote, in no order.

    Each follows the answer whose context it holds, and nothing else, and is by the author of
    that answer's seal (CKPT-23).
    """
    log, found = held.log, []
    for node in held.order.nodes.values():
        if node.generation is None:
            continue
        for child in log.children(node.generation):
            entry = log.entries[child]
            header = entry.header
            if header.kind != Kind.CHECKPOINT or header.author != node.author:
                continue
            if header.parents != (node.generation,):
                continue
            body = log.body(child)
            if isinstance(body, Checkpoint) and log.membership.is_visible(entry):
                one = Offered(
                    child, held.id, header.author, node.generation, body, header.create_time_ms
                )
                found.append(one)
    return found


def usable(
    offers: Iterable[Offered], namespace: bytes, ids: Sequence[int], now_ms: int
) -> list[Offered]:
    """Return the unexpired checkpoints of a namespace whose tokens `ids` begin with.

    The longest comes first, and of equal ones the one written last.
    """
    mine = [o for o in offers if o.body.namespace == namespace and not o.has_expired(now_ms)]
    if not mine:
        return []
    lineage = Lineage(namespace, ids)
    fits = (
        o
        for o in mine
        if o.body.tokens <= len(lineage) and lineage.at(o.body.tokens) == o.body.lineage
    )
    return sorted(fits, key=lambda o: (-o.body.tokens, -o.create_time_ms, o.id))


def surplus(kept: Iterable[Offered], size: int, budget: int) -> list[Offered]:
    """Return the archives to remove, the oldest first, so that `size` more bytes fit."""
    oldest_first = sorted(kept, key=lambda o: (o.create_time_ms, o.id))
    total, removed = sum(o.body.size_bytes for o in oldest_first) + size, []
    for each in oldest_first:
        if total <= budget:
            break
        total -= each.body.size_bytes
        removed.append(each)
    return removed
