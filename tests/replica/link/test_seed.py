"""Giving a log to a hub that does not know the conversation (LINK-10, LINK-34)."""

from replica import limits
from replica.conversation.conversation import Conversation
from replica.limits import SEEDINGS_MAX
from replica.link.channel import Channel
from replica.link.seed import seed
from replica.log.body import Grant, Member, Role
from replica.log.damage import Lost
from tests.support.writers import Writer, said

ADA, BOB = Writer(1), Writer(2)
GENESIS = ADA.genesis()
ID = GENESIS.conversation
GRANT = ADA.write(ID, Member(Grant(BOB.public, Role.WRITER)), parents=[GENESIS])
HELLO = ADA.write(ID, said("hello"), parents=[GENESIS])
ALL = (GENESIS, GRANT, HELLO)


def held(*entries, lost: Lost | None = None) -> Conversation:
    return Conversation.restore(ID, entries, *([lost] if lost else []))


def test_the_first_time_all_of_the_log_is_queued_and_the_answer_awaited_at_once() -> None:
    channel = Channel(ID)
    assert seed(channel, held(*ALL), 5.0)
    assert set(channel.outgoing.single) == channel.unacked == {e.id for e in ALL}
    assert channel.outgoing.single[0] == GENESIS.id
    assert (channel.is_open, channel.recheck_at) == (True, 5.0)


def test_later_times_show_the_membership_alone_and_after_a_pause() -> None:
    channel = Channel(ID, seedings=1)
    assert seed(channel, held(*ALL), 5.0)
    assert list(channel.outgoing.single) == [GENESIS.id, GRANT.id]
    assert channel.unacked == {e.id for e in ALL}, "nothing is acked by that"
    assert channel.recheck_at == 5.0 + limits.RESYNC_S


def test_what_was_sent_before_is_sent_again() -> None:
    channel = Channel(ID, in_flight={GENESIS.id})
    seed(channel, held(*ALL), 0.0)
    assert GENESIS.id in channel.outgoing.single


def test_after_a_few_times_the_hub_is_believed() -> None:
    channel = Channel(ID)
    tries = [seed(channel, held(*ALL), 0.0) for _ in range(SEEDINGS_MAX + 1)]
    assert tries == [True] * SEEDINGS_MAX + [False]


def test_without_a_genesis_there_is_nothing_to_give() -> None:
    channel = Channel(ID)
    assert not seed(channel, Conversation(ID), 0.0)
    assert (channel.seedings, len(channel.outgoing)) == (0, 0)


def test_a_replica_that_lost_membership_gives_what_is_left_of_it() -> None:
    channel = Channel(ID)
    second = ADA.write(ID, Member(Grant(Writer(3).public, Role.READER)), parents=[GRANT])
    blocked = held(GENESIS, HELLO, second, lost=Lost(membership=frozenset({GRANT.id})))
    assert seed(channel, blocked, 0.0)
    assert list(channel.outgoing.single) == [second.id], (
        "not the genesis: nobody begins anew with it"
    )
    assert not channel.is_open
