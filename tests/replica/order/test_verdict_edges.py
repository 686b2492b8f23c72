"""The verdicts on seals, case by case (spec/03-order §3, ORD-7)."""

import pytest

from replica.log.body import Grant, Role
from replica.order.verdict import VoidReason
from tests.support.branches import Scene
from tests.support.stories import seal_of
from tests.support.writers import Writer


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


def test_a_seal_follows_its_request_alone() -> None:
    scene = Scene()
    request = scene.ask()
    body = seal_of(scene.held, request.id, (scene.hello.id, request.id), None)
    listed = [scene.held.log.entries[i] for i in body.membership_heads]
    parents = [scene.hello, request]
    both = scene.add(scene.hal.write(scene.held.id, body, parents=parents, listed=listed))
    assert scene.held.order.void == {both.id: VoidReason.PARENT_NOT_REQUEST}


def test_a_seal_of_a_void_request_is_void() -> None:
    scene, reader = Scene(), Writer(3)
    scene.member(Grant(reader.public, Role.READER), scene.grant)
    request = scene.ask(by=reader)
    body = seal_of(scene.held, request.id, (scene.hello.id, request.id), None)
    listed = [scene.hello, *(scene.held.log.entries[i] for i in body.membership_heads)]
    seal = scene.add(scene.hal.write(scene.held.id, body, parents=[request], listed=listed))
    assert scene.held.order.void == {seal.id: VoidReason.REQUEST_VOID}
