"""The faults of one seed and their rates; every seed draws its own mix."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from replica import limits
from replica.link import channel, hub_side
from syncd.links import fan_out


@dataclass(frozen=True, slots=True)
class Mix:
    """The mix of one seed; rates are per frame or per effect, times in virtual seconds."""

    people: int
    conversations: int
    actions: int
    span_s: float
    latency_s: float
    jitter_s: float
    reorder: bool
    drop: float
    duplicate: float
    breaks: int
    partitions: int
    blackhole: bool
    commit_s: float
    crash: float
    crashes_max: int
    crash_targets: tuple[str, ...]
    refuse: float
    refusals_max: int
    hub_loss: bool
    rollback: bool
    keep_epoch: bool
    revoke: str
    """The key that the owner revokes: "person", "host"; "self": a resignation; "both": both."""
    remember_acks: bool
    follow: bool
    cancels: bool
    small_limits: bool
    hosts: int
    deletes: bool
    """Drawn and not used yet: an owner deletes the last conversation on the hub."""
    pushes: int
    """Drawn and not used yet: messages of a client without a link."""
    damage: int
    """Number of disks that lose entries to flipped bits."""
    hub_memory: int
    """Most conversations in the hub's memory besides those in use."""
    late_s: float = 0.0
    """By how much a replica's deadlines run late, behind the frames that came meanwhile."""
    promotes: bool = False
    """Whether the last person begins as a reader, and becomes a writer; no seed draws it."""
    syncs: bool = False
    """Whether replicas ask for what the hub holds, as `sync()` does; no seed draws it."""

    @property
    def has_damage(self) -> bool:
        """Say whether disks lose entries that other nodes hold."""
        return bool(self.damage) and not (self.hub_loss or self.rollback or self.revoke)

    @property
    def has_lossless_links(self) -> bool:
        """Say whether all frames arrive once and in order."""
        faults = (self.drop, self.duplicate, self.breaks, self.partitions, self.reorder)
        return not any(faults)

    @property
    def is_calm(self) -> bool:
        """Say whether the mix has no faults."""
        stores_fail = self.refuse or self.hub_loss or self.rollback or self.has_damage
        return self.has_lossless_links and not (self.crash or stores_fail or self.small_limits)

    @property
    def delivers_drafts(self) -> bool:
        """Say whether readers get every draft completely: no losses, enough credit."""
        is_hub_whole = "hub" not in self.crash_targets and not self.hub_loss
        is_whole = is_hub_whole and not (self.has_damage or self.rollback or self.revoke == "host")
        return self.has_lossless_links and is_whole and not self.small_limits

    @property
    def may_fork(self) -> bool:
        """Say whether an honest key may write two entries at one lane position.

        A rollback alone must not cause that, because of epochs.
        """
        return self.keep_epoch or self.hub_loss

    @property
    def may_repeat(self) -> bool:
        """Say whether a host may seal and answer a request again after a loss."""
        return self.rollback or self.hub_loss


def draw(random: Random) -> Mix:
    """Draw a mix: each fault is on in some seeds only, so none hides another."""

    def on(chance: float) -> bool:
        return random.random() < chance

    lossy = on(0.5)
    crash_targets = tuple(t for t in ("person", "host", "hub") if on(0.5))
    rollback = on(0.3)
    mix = Mix(
        people=random.choice((2, 3, 3, 4)),
        conversations=2 if on(0.15) else 1,
        actions=random.randint(6, 26),
        span_s=random.choice((3.0, 15.0, 50.0)),
        latency_s=random.choice((0.001, 0.02, 0.3)),
        jitter_s=random.choice((0.0, 0.01, 0.5)),
        reorder=on(0.4),
        drop=random.choice((0.02, 0.1, 0.3)) if lossy else 0.0,
        duplicate=random.choice((0.05, 0.3)) if on(0.35) else 0.0,
        breaks=random.randint(1, 4) if on(0.4) else 0,
        partitions=random.randint(1, 3) if on(0.4) else 0,
        blackhole=on(0.5),
        commit_s=random.choice((0.0, 0.005, 0.2)),
        crash=random.choice((0.005, 0.03, 0.1)) if crash_targets else 0.0,
        crashes_max=random.randint(1, 4),
        crash_targets=crash_targets,
        refuse=random.choice((0.05, 0.3)) if on(0.25) else 0.0,
        refusals_max=random.randint(1, 4),
        hub_loss=on(0.15),
        rollback=rollback,
        keep_epoch=rollback and on(0.5),
        revoke=random.choice(("person", "person", "host", "self", "both")) if on(0.25) else "",
        remember_acks=on(0.5),
        follow=on(0.5),
        cancels=on(0.3),
        small_limits=on(0.3),
        hosts=2 if on(0.2) else 1,
        deletes=on(0.1),
        pushes=random.choice((1, 4)) if on(0.3) else 0,
        damage=random.choice((1, 2)) if on(0.3) else 0,
        hub_memory=1 if on(0.5) else 9,
        late_s=random.choice((0.0, 0.0, 0.1, 1.0)),
    )
    return calmed(mix) if on(0.1) else mix


def calmed(mix: Mix) -> Mix:
    """Return a mix without any fault."""
    mix = with_whole_stores(with_lossless_links(mix))
    return replace(mix, crash=0.0, crash_targets=(), refuse=0.0, small_limits=False)


def with_lossless_links(mix: Mix) -> Mix:
    """Return a mix in which all frames arrive once and in order."""
    return replace(mix, drop=0.0, duplicate=0.0, breaks=0, partitions=0, reorder=False)


def with_whole_stores(mix: Mix) -> Mix:
    """Return a mix in which no store loses entries."""
    return replace(mix, hub_loss=False, rollback=False, keep_epoch=False, damage=0)


_SMALL = (
    (limits, "CREDIT_BYTES", 6_000),
    (limits, "IDS_PER_FRAME", 5),
    (limits, "PENDING_LINK_BYTES_MAX", 14_000),
    (channel, "ENTRIES_FRAME_BYTES", 1_200),
    (hub_side, "SHARED_IDS", 1),
    (fan_out, "SEND_COST_MAX", 1),
)


@contextmanager
def limits_of(mix: Mix) -> Iterator[None]:
    """Run with small limits, so that a short run reaches them."""
    before = [getattr(module, name) for module, name, _ in _SMALL]
    try:
        if mix.small_limits:
            for module, name, value in _SMALL:
                setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(_SMALL, before, strict=True):
            setattr(module, name, value)
