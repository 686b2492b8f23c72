"""The cuts of a revocation that keeps all that its author holds (spec/03-order §2, ORD-4).

Pure. Only covered entries are named: a cut at an entry of a reader would make its lane
covered, and each lane so named is one more that all replicas compare for ever.
"""

from replica.ids import PublicKey
from replica.log import Cut, Log


def cuts_of(log: Log, key: PublicKey) -> tuple[Cut, ...]:
    """Return a cut at each covered head of the lanes of `key`, sorted."""
    return tuple(
        Cut(head.lane.epoch, head.lane.track, head.seq, head.id)
        for head in log.heads()
        if head.lane.author == key
    )
