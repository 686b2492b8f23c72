"""The owner that derived state belongs to."""

from model_host.scheduling.owner import owner_of
from replica.log.body import Role
from tests.model_host.scheduling.scheduled import Scene
from tests.support.writers import Writer


def test_it_is_the_first_owner_of_the_genesis_whoever_was_granted_since():
    scene = Scene()
    scene.grant(Writer(7).public, Role.OWNER)
    assert owner_of(scene.held) == scene.owner.public
