"""Who may see all that a host computes."""

from model_host.operators import Operators
from replica.ids import PublicKey
from tests.model_host.planned import Scene
from tests.support.writers import Writer

HOST, NAMED = PublicKey(b"h" * 32), PublicKey(b"n" * 32)


def test_the_host_and_the_keys_named_are_operators() -> None:
    operators = Operators(HOST, [NAMED])
    assert HOST in operators
    assert NAMED in operators
    assert PublicKey(bytes(32)) not in operators


def test_members_and_operators_see_the_runs_of_a_conversation() -> None:
    scene, operators = Scene(), Operators(HOST, [NAMED])
    assert operators.may_see(NAMED, scene.held)
    assert operators.may_see(scene.owner.public, scene.held)
    assert not operators.may_see(Writer(9).public, scene.held)
