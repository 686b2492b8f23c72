"""Effects of a link: the conversation each concerns, and their collection."""

import pytest

from replica.conversation.drafts import Draft
from replica.ids import ConversationId, Digest, EntryId
from replica.link.effects import Effects, EffectsBuilder, conversation_of
from replica.link.events import DraftReceived, EntriesAdmitted, LinkClosed, Listed
from replica.link.frame import Frame
from replica.link.messages import Ack, Close, Fault, ListingItem, Ping
from tests.support.writers import Writer

ID = ConversationId(b"c" * 32)
DRAFT = Draft(ID, EntryId(bytes(32)), 1, 0, (1,), 0, b"x", Digest(bytes(32)))


@pytest.mark.parametrize(
    "shown",
    [
        Ack(ID, ()),
        Close(ID),
        Fault("REASON", conversation=ID),
        DRAFT,
        DraftReceived(DRAFT),
        EntriesAdmitted(ID, ()),
        Frame.of(Ack(ID, ()), "to_client"),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_a_message_event_or_frame_concerns_its_conversation(shown) -> None:
    assert conversation_of(shown) == ID


@pytest.mark.parametrize(
    "shown",
    [
        Ping(1),
        Close(),
        Fault("REASON"),
        LinkClosed(),
        Listed((ListingItem(ID),)),
        Frame.of(Ping(1), "to_hub"),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_what_concerns_the_link_concerns_no_conversation(shown) -> None:
    assert conversation_of(shown) is None


def test_what_is_collected_is_frozen_in_its_order() -> None:
    first, second = Writer(1).genesis(), Writer(2).genesis()
    frames = [Frame.of(Ping(n), "to_hub") for n in (1, 2)]
    out = EffectsBuilder()
    out.persist += [first, second]
    out.send += frames
    out.deliver.append(LinkClosed())
    built = out.build(7.5)
    assert built == Effects((first, second), tuple(frames), (LinkClosed(),), 7.5)
    out.persist.clear()
    assert built.persist == (first, second)
    assert EffectsBuilder().build(None) == Effects()
