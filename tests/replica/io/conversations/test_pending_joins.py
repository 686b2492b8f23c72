"""The row of joins that wait for an answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from replica.conversation import Invitation
from replica.ids import ConversationId
from replica.io import begin
from replica.io.conversations.pending_joins import forget_answered, pending_joins, record_join
from replica.io.driver.replica import Replica
from replica.io.serving.rpc import now_ms
from replica.limits import INVITATION_LIFETIME_S
from replica.log.body import Genesis, Role
from tests.support.files import query
from tests.support.writers import Writer

ADA, BOB = Writer(1), Writer(2)
DAY_MS = INVITATION_LIFETIME_S * 1000


def invitation(number: int = 1, expire_time_ms: int = 1 << 60) -> Invitation:
    return Invitation(
        "127.0.0.1:7411", ADA.public, ConversationId(bytes([number]) * 32), ADA.public,
        Role.WRITER, expire_time_ms, bytes([number]) * 16,
    )  # fmt: skip


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[Replica]:
    async with Replica.open(tmp_path / "log.db", BOB.key) as replica:
        yield replica


async def test_a_join_is_recorded_once_and_until_it_has_an_answer(bob: Replica) -> None:
    first, second = invitation(1), invitation(2)
    for one in (first, second, first):
        await record_join(bob, one, is_pending=True)
    joins = await pending_joins(bob.store)
    assert [join.mailbox for join in joins] == [first.mailbox, second.mailbox]
    assert (joins[0].conversation, joins[0].inviter) == (first.conversation, ADA.public)
    assert (joins[0].role, joins[0].hub_address) == (Role.WRITER, "127.0.0.1:7411")
    await record_join(bob, first, is_pending=False)
    await record_join(bob, first, is_pending=False)
    assert await pending_joins(bob.store) == joins[1:]


async def test_what_expired_more_than_a_day_ago_is_left_out_with_the_next_change(
    bob: Replica,
) -> None:
    old, late = invitation(1, now_ms() - DAY_MS - 60_000), invitation(2, now_ms() - 60_000)
    for one in (old, late, replace(late, secret=b"3" * 16)):
        await record_join(bob, one, is_pending=True)
    assert old.mailbox not in [join.mailbox for join in await pending_joins(bob.store)]
    assert len(await pending_joins(bob.store)) == 2


async def test_what_a_conversation_shows_to_be_answered_is_removed(bob: Replica) -> None:
    begun = await bob.create(Genesis((BOB.public,)))
    waiting, elsewhere = invitation(1), invitation(2)
    owner = replace(invitation(3), conversation=begun, role=Role.OWNER)
    reader = replace(owner, role=Role.READER, secret=b"4" * 16)
    for one in (waiting, elsewhere, owner, reader):
        await record_join(bob, one, is_pending=True)
    for conversation in (begun, begun):
        await forget_answered(bob, conversation)
        joins = await pending_joins(bob.store)
        assert [join.mailbox for join in joins] == [
            one.mailbox for one in (waiting, elsewhere, reader)
        ]


async def test_a_damaged_row_counts_as_none_and_is_made_anew(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "log.db", BOB.key) as replica:
        await record_join(replica, invitation(1), is_pending=True)
    query(tmp_path / "log.db", "UPDATE meta SET value = x'7b' WHERE key = 'pending joins'")
    async with Replica.open(tmp_path / "log.db", BOB.key) as replica:
        assert await pending_joins(replica.store) == []
        await record_join(replica, invitation(2), is_pending=True)
        assert len(await pending_joins(replica.store)) == 1


async def test_a_key_that_was_removed_since_waits_for_no_answer(bob: Replica) -> None:
    begun = await bob.create(Genesis((BOB.public,)))
    reader = replace(invitation(1), conversation=begun, role=Role.READER)
    await record_join(bob, reader, is_pending=True)
    await begin.remove(bob, begun, BOB.public, leave_ownerless=True)
    await forget_answered(bob, begun)
    assert await pending_joins(bob.store) == []


async def test_joins_of_two_processes_are_recorded_one_after_the_other(tmp_path: Path) -> None:
    wanted = [invitation(number) for number in range(1, 9)]
    path = tmp_path / "log.db"
    async with (
        Replica.open(path, BOB.key, shared=True) as one,
        Replica.open(path, BOB.key, shared=True) as other,
    ):
        begun = await one.create(Genesis((BOB.public,)))
        answered = replace(invitation(9), conversation=begun, role=Role.OWNER)
        await record_join(one, answered, is_pending=True)
        await asyncio.gather(
            forget_answered(one, begun),
            *(
                record_join(replica, each, is_pending=True)
                for replica, each in zip(cycle((other, one)), wanted, strict=False)
            ),
        )
        mailboxes = {join.mailbox for join in await pending_joins(other.store)}
    assert mailboxes == {each.mailbox for each in wanted}
