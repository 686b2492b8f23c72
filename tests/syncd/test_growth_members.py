"""A change of the members costs the entries that it concerns, not the whole log (LIM-7, LIM-9)."""

from collections.abc import Callable

import pytest

from replica.link.messages import Entries, Hello, Open
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from tests.support.call_count import calls
from tests.support.scene import Scene
from tests.support.writers import Writer, said

SHORT, LONG = 200, 800


def _scene(count: int, *changes: Grant | Revocation) -> tuple[Scene, list[Entry]]:
    scene = Scene().begin()
    scene.give(*scene.chain(count))
    owner, at, written = Writer(1, epoch=77), scene.genesis, []
    for change in changes:
        written.append(at := owner.write(scene.id, Member(change), parents=[at]))
    assert scene.held.log.digest
    return scene, written


def _granted(count: int) -> int:
    scene, (grant,) = _scene(count, Grant(Writer(50).public, Role.WRITER))
    return _calls(scene, grant)


def _revoked(count: int) -> int:
    scene, (grant, revocation) = _scene(
        count, Grant(Writer(50).public, Role.WRITER), Revocation(Writer(50).public, ())
    )
    scene.give(grant)
    return _calls(scene, revocation)


def _watched(count: int) -> int:
    """Grant a role beside a Watch, which gets a hint with the parents of the next entry."""
    scene, (grant, other) = _scene(
        count, Grant(Writer(50).public, Role.WRITER), Grant(Writer(51).public, Role.READER)
    )
    watcher = scene.hub.connect(scene.writer.public, 0.0, watches=True)
    scene.hub.receive(watcher, Hello((1,)), 0.0)
    scene.hub.receive(watcher, Open(scene.id, scene.held.log.digest), 0.0)
    scene.give(grant)
    return _calls(scene, other)


def _calls(scene: Scene, entry: Entry) -> int:
    assert scene.held.log.digest
    message = Entries(scene.id, (entry,))
    return calls(
        lambda: (
            scene.hub.begin_push(scene.writer.public).whole(message, 0.0),
            scene.held.log.digest,
        )
    )


@pytest.mark.parametrize("work", [_granted, _revoked, _watched])
def test_a_change_of_the_members_costs_the_same_on_a_long_log(work: Callable[[int], int]) -> None:
    assert work(LONG) <= 1.5 * work(SHORT)


def test_a_digest_over_many_lanes_is_moved_lane_by_lane() -> None:
    def work(lanes: int) -> int:
        scene, _ = _scene(1)
        for epoch in range(lanes):
            lane = Writer(1, epoch=1_000 + epoch)
            scene.give(lane.write(scene.id, said("x"), parents=[scene.genesis]))
        return _calls(scene, *scene.chain(1))

    assert work(160) <= 1.5 * work(40)
