"""The rule of coverage, case by case (spec/03-order §3, ORD-6)."""

from replica.conversation.next_seal import sealable
from replica.log.body import Grant, Join, Role
from replica.log.entry import Entry
from replica.order.coverage import is_answer
from tests.support.branches import Scene
from tests.support.stories import answer
from tests.support.writers import Writer, said


def _listed(scene: Scene, request: Entry) -> list[bytes]:
    found = sealable(scene.held, request.id)
    assert found is not None
    return list(found.entries)


def test_an_answer_is_a_generation_whose_only_parent_is_the_seal() -> None:
    scene = Scene()
    _, seal, generation = scene.turn()
    _, other, _ = scene.turn(generation, basis=seal)
    gathered = scene.hal.write(scene.held.id, answer(), parents=[seal, other])
    assert is_answer(generation, seal.id)
    assert not is_answer(generation, other.id)
    assert not is_answer(gathered, seal.id)
    assert not is_answer(scene.say(seal), seal.id)


def test_a_message_that_follows_the_seal_is_listed_in_order_not_first() -> None:
    scene = Scene()
    first, seal, _ = scene.turn()
    wait = scene.say(first, by=Writer(1, epoch=2))
    behind_seal = scene.say(seal)
    assert wait.order_key < behind_seal.order_key
    over = scene.ask(wait, behind_seal, basis=seal, fork=True)
    assert _listed(scene, over) == [wait.id, behind_seal.id, over.id]


def test_a_lane_is_dropped_from_its_first_forked_position_on() -> None:
    scene, bob = Scene(), Writer(3)
    scene.member(Grant(bob.public, Role.WRITER), scene.grant)
    twin, ends = bob.restored(), []
    for writer, words in ((bob, "one"), (twin, "two")):
        first = scene.add(writer.write(scene.held.id, said(words), parents=[scene.hello]))
        second = scene.add(writer.write(scene.held.id, said(words), parents=[first]))
        ends.append(scene.add(writer.write(scene.held.id, said(words), parents=[second])))
    asked = scene.ask(*ends)
    assert _listed(scene, asked) == [scene.hello.id, asked.id]


def test_a_lane_is_kept_before_its_first_forked_position() -> None:
    scene, bob = Scene(), Writer(3)
    scene.member(Grant(bob.public, Role.WRITER), scene.grant)
    kept = scene.say(scene.hello, by=bob)
    twin = bob.restored()
    forked = [scene.say(kept, by=bob), scene.add(twin.write(scene.held.id, Join(), parents=[kept]))]
    asked = scene.ask(*forked)
    assert _listed(scene, asked) == [scene.hello.id, kept.id, asked.id]
