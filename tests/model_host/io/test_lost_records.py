"""A run resumes behind a journal that a power loss cut short: real hub and host."""

from collections.abc import Callable

import pytest

from model_host.generation.journal_records import HEAD_BYTES, TOKEN_BYTES
from replica.conversation.drafts import Draft
from replica.link.events import DraftReceived, Event
from tests.model_host.io.held_steps import held_after
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
    served: ServedHost, loss: Callable[[bytes], bytes]
):
    with held_after(12):
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            await talk.say("Write a very long story about the sea.")
            request = await talk.request(tokens=60, output_tokens_min=60)
            assert await served.replica.wait_for(lambda: len(talk.tokens(request)) > 8, 30)
    (path,) = served.journals.iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:HEAD_BYTES] + loss(data[HEAD_BYTES:]))
    shown, tokens = talk.shown(request), len(talk.tokens(request))
    behind: list[Draft] = []

    def receive(event: Event) -> None:
        if isinstance(event, DraftReceived):
            behind.append(event.draft)

    served.replica.listen(receive)
    async with served.host():
        answer = await talk.answer(request)
    assert talk.shown(request) == text_of(answer.parts)
    assert len(answer.token_ids) == 60
    assert text_of(answer.parts).startswith(shown)
    assert [draft.token_offset for draft in behind] == list(range(tokens, len(answer.token_ids)))
    assert bool(answer.usage.first_token_us) == (loss is lost), "another clock counted the others"
