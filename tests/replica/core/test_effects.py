"""Effects of a replica's core: the conversations they concern, and several as one."""

from replica.core.effects import ReplicaEffects, joined
from replica.ids import ConversationId
from replica.link.effects import Effects
from replica.link.events import LinkClosed, StateChanged, SyncState
from replica.link.frame import Frame
from replica.link.messages import Close, Ping
from tests.support.writers import Writer

A, B = (ConversationId(bytes([n]) * 32) for n in (1, 2))


def frame(message) -> Frame:
    return Frame.of(message, "to_hub")


def test_effects_concern_the_conversations_of_their_frames_and_events() -> None:
    effects = ReplicaEffects(
        send=(frame(Close(A, None)), frame(Ping(1))),
        deliver=(StateChanged(B, SyncState.OFFLINE), LinkClosed(None)),
    )
    assert effects.about == {A, B}


def test_effects_that_only_ask_for_a_load_concern_none() -> None:
    assert ReplicaEffects(load=(A,), acked=((B, ()),)).about == set()


def test_joined_effects_keep_the_order_of_each_kind() -> None:
    first, second = Writer(1).genesis(), Writer(2).genesis()
    offline = [StateChanged(c, SyncState.OFFLINE) for c in (A, B)]
    frames = [frame(Close(c, None)) for c in (A, B)]
    one = Effects((first,), (frames[0],), (offline[0],))
    two = Effects((second,), (frames[1],), (offline[1],))
    assert joined([one, two]) == Effects((first, second), tuple(frames), tuple(offline))
    assert joined([]) == Effects()
