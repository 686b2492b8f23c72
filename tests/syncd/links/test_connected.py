"""The links of a hub by the conversations they have open (spec/04-link §7)."""

from typing import Any

import pytest

from replica.ids import Digest
from replica.link.effects import Effects
from replica.link.link import Link
from replica.link.messages import Close, Hello, Open
from syncd.links.connected import Connected, LinkId
from tests.support.scene import Scene
from tests.support.writers import Writer


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def connected(scene: Scene) -> Connected:
    return scene.hub.connected


def open_at(scene: Scene) -> LinkId:
    """Return another link of the writer that has the conversation open."""
    link_id = scene.hub.connect(scene.writer.public, 0.0)
    for message in (Hello((1,)), Open(scene.id, Digest(bytes(32)))):
        scene.hub.receive(link_id, message, 0.0)
    return link_id


def readers(scene: Scene) -> list[LinkId]:
    return [link_id for link_id, _ in connected(scene).readers(scene.id)]


def test_a_link_is_a_reader_once_it_has_opened_the_conversation(scene: Scene):
    before = readers(scene)
    idle = scene.hub.connect(scene.writer.public, 0.0)
    scene.hub.receive(idle, Hello((1,)), 0.0)
    link_id = open_at(scene)
    assert readers(scene) == [*before, link_id]
    assert connected(scene).is_open(scene.id)


def test_a_refused_open_makes_no_reader(scene: Scene):
    before = readers(scene)
    link_id = scene.hub.connect(Writer(66).public, 0.0)
    for message in (Hello((1,)), Open(scene.id, Digest(bytes(32)))):
        scene.hub.receive(link_id, message, 0.0)
    assert readers(scene) == before


def test_a_link_that_closes_the_conversation_reads_no_more(scene: Scene):
    before, link_id = readers(scene), open_at(scene)
    scene.hub.receive(link_id, Close(scene.id), 0.0)
    assert readers(scene) == before
    scene.hub.receive(link_id, Open(scene.id, Digest(bytes(32))), 0.0)
    assert readers(scene) == [*before, link_id]


def test_a_link_closed_before_it_is_removed_leaves_nothing_behind(scene: Scene):
    before, link_id = readers(scene), open_at(scene)
    scene.hub.receive(link_id, Close(scene.id), 0.0)  # nobody asks for the readers meanwhile
    scene.hub.disconnect(link_id)
    assert readers(scene) == before
    assert connected(scene).remove(link_id) is None


def test_the_last_reader_leaves_no_conversation_behind(scene: Scene):
    for link_id in readers(scene):
        scene.hub.disconnect(link_id)
    assert not connected(scene).is_open(scene.id)
    assert connected(scene)._readers == {}


def test_an_append_does_not_touch_links_that_do_not_read_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    idle = [scene.hub.connect(scene.writer.public, 0.0) for _ in range(64)]
    for link_id in idle:
        scene.hub.receive(link_id, Hello((1,)), 0.0)
    open_at(scene)
    touched, offer = [], Link.offer

    def counting(self: Link, *args: Any, **named: Any) -> Effects:
        touched.append(self)
        return offer(self, *args, **named)

    monkeypatch.setattr(Link, "offer", counting)
    scene.say()
    assert touched
    assert not any(touched_link is scene.hub.links[one] for touched_link in touched for one in idle)
