"""The cuts of a revocation that keeps all that a key has written so far (spec/03-order §2, ORD-4).

Only covered entries are named: a cut at an entry of a reader would make its lane
covered, and each lane so named is one more that all replicas compare for ever.
"""

from replica import limits
from replica.ids import PublicKey
from replica.log.body import Cut
from replica.log.log import Log
from replica.refusals import ArgumentInvalid


def cuts_at_heads(log: Log, key: PublicKey) -> tuple[Cut, ...]:
    """Return a cut at each covered head of the lanes of `key`, sorted.

    A forked lane has several, which keep all its branches. Raises ArgumentInvalid beyond the
    limit.
    """
    cuts = tuple(
        Cut(head.lane.epoch, head.lane.track, head.seq, head.id)
        for head in log.heads()
        if head.lane.author == key
    )
    if len(cuts) > limits.CUTS_MAX:
        raise ArgumentInvalid(f"the key has {len(cuts)} lanes; a revocation has room for fewer")
    return cuts
