"""Drafts on a link: from the sealing host to every reader (spec/04-link §6)."""

from dataclasses import replace

import pytest

from replica.ids import EntryId
from replica.testing import Peer
from tests.support.host_scene import HostScene


@pytest.fixture
def scene() -> HostScene:
    return HostScene()


def shown(peer: Peer, scene: HostScene, request: EntryId) -> bytes:
    """Return the draft bytes a reader has."""
    stream = peer.held(scene.id).drafts.get(request)
    return stream.data if stream else b""


def test_drafts_are_passed_on_only_after_the_seal(scene: HostScene) -> None:
    request = scene.request()
    (early,) = scene.frames(request.id, [(1,)])
    scene.hosting.send(early)
    assert shown(scene.reading, scene, request.id) == b""
    scene.hosting.append(scene.seal(request))
    scene.stream(early)
    assert shown(scene.reading, scene, request.id) == b"x"


def test_only_signed_drafts_of_the_sealing_host_are_accepted(scene: HostScene) -> None:
    request = scene.ask()
    (frame,) = scene.frames(request, [(1,)])
    scene.client.send(frame)
    scene.hosting.send(replace(frame, data=b"J"))
    assert scene.client.faults[-1] == "ROLE_FORBIDS"
    assert scene.hosting.faults[-1] == "SIGNATURE_INVALID"
    assert shown(scene.reading, scene, request) == b""


def test_a_late_reader_gets_the_running_draft_and_its_end(scene: HostScene) -> None:
    request = scene.ask()
    scene.stream(*scene.frames(request, [(1,), (2,)]))
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert shown(late, scene, request) == b"xx"
    scene.answer()
    assert shown(late, scene, request) == b""
    assert request not in scene.held.drafts
