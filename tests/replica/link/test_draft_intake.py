"""Whose streamed output is kept, and where (spec/04-link §6, LINK-17)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.drafts import Draft, DraftStream
from replica.ids import EntryId
from replica.link.draft_intake import accept_draft
from replica.refusals import NotAllowed, SignatureInvalid
from tests.support.host_scene import RUN, HostScene


@pytest.fixture
def scene() -> HostScene:
    return HostScene()


def data(scene: HostScene, draft: Draft) -> bytes:
    stream = scene.held.drafts.get(draft.request)
    return stream.data if stream else b""


def test_a_draft_of_the_sealing_host_is_kept_and_is_news_once(scene: HostScene) -> None:
    first, second = scene.frames(scene.ask(), [(1,), (2,)])
    assert accept_draft(scene.held, first, scene.host.public)
    assert accept_draft(scene.held, second, None), "a hub passed it on"
    assert not accept_draft(scene.held, second, scene.host.public)
    assert data(scene, first) == b"xx"


def test_a_draft_before_its_seal_or_after_its_answer_is_no_news(scene: HostScene) -> None:
    request = scene.request()
    (early,) = scene.frames(request.id, [(1,)])
    assert not accept_draft(scene.held, early, scene.host.public)
    (late,) = scene.frames(scene.ask(), [(1,)])
    scene.answer()
    assert not accept_draft(scene.held, late, scene.host.public)
    assert scene.held.drafts == {}


def test_another_member_streams_nothing(scene: HostScene) -> None:
    (draft,) = scene.frames(scene.ask(), [(1,)])
    with pytest.raises(NotAllowed):
        accept_draft(scene.held, draft, scene.reader.public)
    assert data(scene, draft) == b""


def test_a_draft_is_checked_against_the_hosts_key_whoever_brings_it(scene: HostScene) -> None:
    (draft,) = scene.frames(scene.ask(), [(1,)])
    for sender in (scene.host.public, None):
        with pytest.raises(SignatureInvalid):
            accept_draft(scene.held, replace(draft, data=b"J"), sender)
    assert data(scene, draft) == b""


def test_only_the_first_frame_of_a_new_run_replaces_another_run(scene: HostScene) -> None:
    request = scene.ask()
    old = scene.frames(request, [(1,), (2,)])
    new = scene.frames(request, [(3,), (4,), (5,)], run=RUN + 1)
    for draft in old:
        accept_draft(scene.held, draft, None)
    assert not accept_draft(scene.held, new[1], None), "its beginning is not here"
    assert scene.held.drafts[request].run == RUN
    assert accept_draft(scene.held, new[0], None)
    assert scene.held.drafts[request].run == RUN + 1
    assert data(scene, new[0]) == b"x"


def test_the_drafts_of_a_conversation_have_a_bound(
    scene: HostScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    [draft] = scene.frames(scene.ask(), [(1,)])
    other = DraftStream(scene.id, EntryId(b"?" * 32), RUN, size_bytes=100_000)
    scene.held.drafts[other.request] = other
    new = 64 * 1024
    monkeypatch.setattr(limits, "RUNNING_DRAFTS_BYTES_MAX", other.memory_bytes + new - 1)
    assert not accept_draft(scene.held, draft, None)
    monkeypatch.setattr(limits, "RUNNING_DRAFTS_BYTES_MAX", other.memory_bytes + new)
    assert accept_draft(scene.held, draft, None)


def test_small_drafts_are_few(scene: HostScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message about a conversation costs as much as it has drafts. A new run needs no room."""
    monkeypatch.setattr(limits, "RUNNING_DRAFTS_BYTES_MAX", 3 * 64 * 1024)
    request = scene.ask()
    for number in range(3):
        other = DraftStream(scene.id, EntryId(bytes([number]) * 32), RUN)
        scene.held.drafts[other.request] = other
    assert not accept_draft(scene.held, *scene.frames(request, [(1,)]), None)
    del scene.held.drafts[other.request]
    assert accept_draft(scene.held, *scene.frames(request, [(1,)]), None)
    assert accept_draft(scene.held, *scene.frames(request, [(1,)], run=RUN + 1), None)
