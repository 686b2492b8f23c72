"""A run resumes behind a journal that a power loss cut short: real hub, host and model."""

from collections.abc import Callable

import pytest

from model_host.generation.journal_records import HEAD_BYTES, TOKEN_BYTES
from replica.conversation.drafts import Draft
from replica.link.events import DraftReceived, Event
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk, text_of


def zeroed(records: bytes) -> bytes:
    return records[: 4 * TOKEN_BYTES] + bytes(len(records) - 4 * TOKEN_BYTES)


def cut_off(records: bytes) -> bytes:
    return records[: 4 * TOKEN_BYTES + 3]


def lost(_records: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("loss", [zeroed, cut_off, lost])
async def test_a_draft_goes_on_behind_tokens_that_a_power_loss_took_from_the_journal(
    served_real: ServedHost, loss: Callable[[bytes], bytes]
):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        await talk.say("Write a very long story about the sea.")
        request = await talk.request(tokens=1000)
        assert await served_real.replica.wait_for(lambda: len(talk.tokens(request)) > 8, 30)
    (path,) = served_real.journals.iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:HEAD_BYTES] + loss(data[HEAD_BYTES:]))
    shown, tokens = talk.shown(request), len(talk.tokens(request))
    behind: list[Draft] = []

    def receive(event: Event) -> None:
        if isinstance(event, DraftReceived):
            behind.append(event.draft)

    served_real.replica.listen(receive)
    async with served_real.host() as host:
        assert await served_real.replica.wait_for(lambda: len(talk.shown(request)) > len(shown), 30)
        await talk.cancel(request)
        answer = await talk.answer(request)
    assert text_of(answer.parts).startswith(shown)
    assert [draft.token_offset for draft in behind] == list(range(tokens, len(answer.token_ids)))
    assert bool(answer.usage.first_token_us) == (loss is lost), "another clock counted the others"
