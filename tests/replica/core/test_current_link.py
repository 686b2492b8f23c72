"""The current link: inputs without one have no effects, except for an append."""

from replica import limits
from replica.conversation.conversation import Conversation
from replica.core.current_link import CurrentLink
from replica.ids import ConversationId
from replica.link.effects import Effects
from replica.link.events import StateChanged, SyncState
from replica.link.messages import Hello, Open, Ping, Welcome
from tests.support.writers import Writer, said

HUB, ME = Writer(9).public, Writer(1)
WELCOME = Welcome(1, HUB, limits.FRAME_BYTES_MAX, limits.CREDIT_BYTES, 60_000)
GENESIS = ME.genesis()
ID = ConversationId(GENESIS.id)


def link_to_hub(*, greeted: bool = True) -> CurrentLink:
    link = CurrentLink(ME.public, {ID: Conversation.restore(ID, [GENESIS])})
    link.begin(HUB, Hello((1,)), 0.0)
    if greeted:
        link.receive(WELCOME, 0.0, 10)
    return link


def kinds(effects: Effects) -> list[type]:
    return [type(frame.message) for frame in effects.send]


def test_without_a_link_inputs_have_no_effects() -> None:
    link = CurrentLink(ME.public, {})
    assert link.receive(Ping(1), 0.0, 10) == Effects()
    assert link.handle_deadline(1e9) == Effects()
    assert link.open(ID, 0.0, acked=(), drafts=True) == Effects()
    assert link.leave(ID) == link.offer(ID, [GENESIS.id], 0.0) == Effects()
    assert (link.hub, link.is_ready, link.has_ended) == (None, False, False)
    assert (link.wake_at, link.channel(ID), link.lacks(ID)) == (None, None, False)
    assert link.end() is None


def test_an_entry_appended_without_a_link_is_persisted_and_not_sent() -> None:
    shelf = {ID: Conversation.restore(ID, [GENESIS])}
    link = CurrentLink(ME.public, shelf)
    entry = ME.write(ID, said("alone"), parents=[GENESIS])
    effects = link.append(entry, 0.0, more_follow=False)
    assert (effects.persist, effects.send) == ((entry,), ())
    assert entry.id in shelf[ID].log.entries


def test_a_link_lacks_a_conversation_until_it_is_opened() -> None:
    link = link_to_hub()
    assert link.lacks(ID)
    assert kinds(link.open(ID, 0.0, acked=(), drafts=True)) == [Open]
    assert not link.lacks(ID)


def test_a_conversation_is_opened_once_on_a_link() -> None:
    link = link_to_hub()
    link.open(ID, 0.0, acked=(), drafts=True)
    assert link.open(ID, 0.0, acked=(), drafts=True) == Effects()


def test_a_link_is_ready_when_the_hub_has_greeted() -> None:
    link = link_to_hub(greeted=False)
    assert (link.hub, link.is_ready) == (HUB, False)
    link.receive(WELCOME, 0.0, 10)
    assert link.is_ready


def test_the_end_of_a_link_returns_its_last_events_and_leaves_none() -> None:
    link = link_to_hub()
    link.open(ID, 0.0, acked=(), drafts=True)
    assert link.end() == (StateChanged(ID, SyncState.OFFLINE),)
    assert (link.hub, link.channel(ID), link.end()) == (None, None, None)
