"""The cuts of a revocation that keeps all that a key has written so far (spec/03-order §2)."""

from replica import limits
from replica.ids import PublicKey
from replica.log.body import Cut
from replica.log.log import Log
from replica.refusals import ArgumentInvalid


def cuts_at_heads(log: Log, key: PublicKey) -> tuple[Cut, ...]:
    """Return a cut at each head of the lanes of `key`. Raises ArgumentInvalid beyond the limit.

    A forked lane has several, which keep all its branches.
    """
    cuts = [
        Cut(position.lane.epoch, position.lane.track, position.seq, position.id)
        for position in log.heads()
        if position.lane.author == key
    ]
    if len(cuts) > limits.CUTS_MAX:
        raise ArgumentInvalid(f"the key has {len(cuts)} lanes; a revocation has room for fewer")
    return tuple(sorted(cuts, key=lambda cut: (cut.epoch, cut.track, cut.seq, cut.id)))
