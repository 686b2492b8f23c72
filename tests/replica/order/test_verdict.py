"""The verdicts on seals, case by case (spec/03-order §3, ORD-7)."""

import pytest

from replica.order.verdict import VoidReason
from tests.support.branches import Scene
from tests.support.stories import seal_of


@pytest.mark.parametrize("reason", VoidReason)
def test_only_behind_a_second_seal_of_a_request_a_person_waits(reason: VoidReason) -> None:
    waits = reason is VoidReason.SEALED_BEFORE
    assert reason.next_step.startswith("Wait:") == waits
    assert reason.next_step.startswith("Ask again") != waits


def test_a_queued_request_with_a_basis_is_sealed_on_its_branch_alone() -> None:
    scene = Scene()
    _, seal, answer = scene.turn()
    queued = scene.ask(answer, basis=seal)
    body = seal_of(scene.held, queued.id, (queued.id,), None)
    listed = [scene.held.log.entries[i] for i in body.membership_heads]
    apart = scene.add(scene.hal.write(scene.held.id, body, parents=[queued], listed=listed))
    assert scene.held.order.void == {apart.id: VoidReason.BRANCH_NOT_EXTENDED}
