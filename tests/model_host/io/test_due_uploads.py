"""Which upload is next."""

import asyncio
from typing import Any

from model_host.io.contexts.due_uploads import DUE_MAX, DueUploads
from replica.ids import ConversationId
from replica.link import StateChanged, SyncState

OFFER: Any = object()


def conversation(number: int) -> ConversationId:
    return ConversationId(number.to_bytes(32, "big"))


async def test_the_one_that_is_due_first_is_next_whenever_it_was_put():
    due = DueUploads(60)
    due.put(conversation(1), OFFER, 60)
    waiting = asyncio.create_task(due.next())
    await asyncio.sleep(0)  # it waits for the first one
    due.put(conversation(2), OFFER, 0)
    async with asyncio.timeout(30):
        assert await waiting == (conversation(2), OFFER)
    due.put(conversation(1), OFFER, 0)  # in place of the time it had
    assert await due.next() == (conversation(1), OFFER)
    assert not due


async def test_of_too_many_the_oldest_is_left_out():
    due = DueUploads(60)
    for number in range(DUE_MAX + 1):
        due.put(conversation(number), OFFER, 0)
    assert len(due) == DUE_MAX
    assert conversation(0) not in due
    due.drop(conversation(1))
    assert await due.next() == (conversation(2), OFFER)


async def test_what_was_uploaded_is_due_again_with_each_link_until_it_is_removed():
    due, linked = DueUploads(0), StateChanged(conversation(1), SyncState.SYNCHRONIZED)
    due.receive(linked)
    due.note_uploaded(conversation(1), OFFER)
    due.receive(StateChanged(conversation(1), SyncState.OFFLINE))
    assert not due
    due.receive(linked)
    assert await due.next() == (conversation(1), OFFER)
    due.put(conversation(1), OFFER, 60)
    due.receive(linked)  # it keeps its time
    due.drop(conversation(1))
    due.note_removed(conversation(1))
    due.receive(linked)
    assert not due


async def test_an_archive_to_look_for_takes_the_place_of_no_upload():
    due = DueUploads(0)
    for number in range(DUE_MAX):
        due.put(conversation(number), OFFER, 0)
    due.note_uploaded(conversation(DUE_MAX), OFFER)
    due.receive(StateChanged(conversation(DUE_MAX), SyncState.SYNCHRONIZED))
    assert conversation(0) in due
    assert len(due) == DUE_MAX
    due.drop(conversation(0))
    due.receive(StateChanged(conversation(DUE_MAX), SyncState.SYNCHRONIZED))
    assert conversation(DUE_MAX) in due


async def test_what_has_expired_is_not_looked_for():
    due = DueUploads(0)
    for number in (1, 2):
        due.note_uploaded(conversation(number), OFFER)
    due.note_kept({conversation(2)})
    for number in (1, 2):
        due.receive(StateChanged(conversation(number), SyncState.SYNCHRONIZED))
    assert conversation(1) not in due
    assert conversation(2) in due
