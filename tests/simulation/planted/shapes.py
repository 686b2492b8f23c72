"""The mixes that show a bug in the fewest seeds."""

from dataclasses import replace

from tests.simulation.mix import Mix, calmed, with_lossless_links, with_whole_stores


def drawn(mix: Mix) -> Mix:
    """Leave the mix as the seed drew it."""
    return mix


def calm(mix: Mix) -> Mix:
    """Play many actions without any fault, in seconds."""
    return replace(_dense(calmed(mix)), span_s=3.0, latency_s=0.3)


def slow(mix: Mix) -> Mix:
    """Play without any fault, in a minute."""
    return replace(calmed(mix), people=3, conversations=1, actions=12, revoke="", span_s=50.0)


def lagging(mix: Mix) -> Mix:
    """Play without any fault, while deadlines run a second late."""
    return replace(slow(mix), late_s=1.0)


def cancelling(mix: Mix) -> Mix:
    """Let people cancel, without any fault."""
    return replace(_dense(calmed(mix)), cancels=True, span_s=15.0)


def parted(mix: Mix) -> Mix:
    """Let people write without links, to two hosts."""
    return replace(
        _dense(calmed(mix)), partitions=3, span_s=15.0, latency_s=0.3, hosts=2, cancels=True
    )


def cutting(mix: Mix) -> Mix:
    """Revoke a person who continues writing, cut off from the hub."""
    mix = replace(_dense(with_whole_stores(mix)), revoke="person", partitions=3, breaks=0)
    return replace(mix, crash=0.0, span_s=15.0)


def resigning(mix: Mix) -> Mix:
    """Let a person resign."""
    return replace(_dense(calmed(mix)), revoke="self")


def promoting(mix: Mix) -> Mix:
    """Let a reader write, and make it a writer later, without any fault."""
    return replace(_dense(calmed(mix)), promotes=True, span_s=15.0)


def crashing(mix: Mix) -> Mix:
    """Let the host crash."""
    return replace(mix, crash=0.05, crash_targets=("host",), crashes_max=4)


def rolling_back(mix: Mix) -> Mix:
    """Restore a disk from a backup; epochs keep lanes from forking."""
    return replace(mix, rollback=True, keep_epoch=False, hub_loss=False)


def forking(mix: Mix) -> Mix:
    """Restore a disk whose owner continues in the old epoch."""
    return replace(
        mix, people=4, actions=40, conversations=1, rollback=True, keep_epoch=True, damage=0
    )


def damaging(mix: Mix) -> Mix:
    """Damage two of four disks while people write cut off from the hub."""
    mix = replace(mix, people=2, damage=2, partitions=3, span_s=15.0)
    return replace(mix, hub_loss=False, rollback=False, revoke="")


def refusing(mix: Mix) -> Mix:
    """Let disks refuse commits while more is queued."""
    return replace(_dense(mix), refuse=0.3, refusals_max=4, commit_s=0.2, span_s=3.0)


def crowding(mix: Mix) -> Mix:
    """Let a hub hold one of several conversations in memory."""
    return replace(_dense(mix), conversations=3, hub_memory=1, commit_s=0.2)


def losing_frames(mix: Mix) -> Mix:
    """Lose and reorder frames."""
    return replace(mix, reorder=True, drop=0.1)


def syncing(mix: Mix) -> Mix:
    """Ask for what the hub holds, again and again, with little credit, behind slow links or not."""
    mix = replace(_dense(with_whole_stores(with_lossless_links(mix))), syncs=True, crash=0.0)
    return replace(mix, small_limits=True, span_s=15.0, latency_s=2.6 if mix.follow else 0.2)


def _dense(mix: Mix) -> Mix:
    return replace(mix, people=4, actions=40, conversations=1, revoke="")
