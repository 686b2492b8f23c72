"""Quotas on a link, and kinds this version does not know (spec/04-link, spec/11-limits)."""

import pytest

from replica import limits
from replica.conversation.author import Author
from replica.errors import EntryRefused
from replica.link.events import EntryFailed
from replica.link.messages import Ack, Entries, Fault
from replica.log.entry import Entry
from replica.refusals import CriticalKindUnknown
from replica.testing import of
from syncd.policy import Policy
from tests.support.scene import Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def test_a_full_conversation_refuses_new_entries_but_not_known_ones():
    scene = Scene(Policy(entries_max=2)).begin()
    line = scene.chain(2)
    scene.client.append(line[0])
    scene.client.append(line[1])
    failed = [e for e in of(EntryFailed, scene.client.events) if e.fault.reason == "QUOTA_EXCEEDED"]
    assert [e.entry for e in failed] == [line[1].id]
    before = len(of(Ack, scene.client.received))
    scene.client.send(Entries(scene.id, (line[0],)))
    assert len(of(Ack, scene.client.received)) == before + 1


def test_conversations_per_link_are_capped(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 1)
    second = Writer(1, epoch=2).genesis()
    scene.client.send(Entries(second.conversation, (second,)))
    scene.client.open(second.conversation)
    assert of(Fault, scene.client.received)[-1].reason == "QUOTA_EXCEEDED"


def test_unknown_kinds_are_carried_by_hub_and_replica_alike(scene: Scene):
    reader_key = Writer(3)
    scene.client.append(scene.grant(reader_key.public))
    reader = scene.network.connect(reader_key.public)
    reader.open(scene.id)
    strange = scene.writer.write(scene.id, said("?"), parents=[scene.genesis], kind=99)
    scene.client.append(strange)
    assert reader.shelf[scene.id].log.entries[strange.id] == strange


def test_an_unknown_critical_kind_makes_an_author_stop(scene: Scene):
    strange = scene.writer.write(
        scene.id, said("?"), parents=[scene.genesis], kind=99, critical=True
    )
    scene.client.append(strange)
    assert strange.id in scene.held.log.entries
    with pytest.raises(CriticalKindUnknown):
        Author(scene.writer.key, 77).write(
            scene.client.shelf[scene.id],
            said("no"),
            parents=(strange.id,),
            salt=bytes(16),
            time_ms=0,
        )


def test_appending_an_entry_that_breaks_a_rule_raises(scene: Scene):
    good = scene.chain(1)[0]
    bad = Entry(good.header_bytes, bytes(64), good.body, good.id, good.header)
    with pytest.raises(EntryRefused):
        scene.client.append(bad)
