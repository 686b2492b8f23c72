"""A host that was removed from a conversation while it answers there."""

import threading

import pytest

from model_host.engine import TorchEngine
from replica.link import SyncState
from replica.log.body import FinishReason, Member, Revocation, Sampling
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_host_computes_nothing_more_of_what_its_hub_will_not_take(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Write a very long story about the sea.")
        request = await talk.request(tokens=600, sampling=Sampling(temperature=0.9, seed=3))
        assert await served.replica.wait_for(lambda: len(talk.shown(request)) > 20, 30)
        here, told = host.replica.shelf[talk.id], threading.Event()
        step = TorchEngine.step

        def held_up(*given):
            assert told.wait(30)
            return step(*given)

        monkeypatch.setattr(TorchEngine, "step", held_up)
        if is_deleted:
            await served.replica.calls().delete(talk.id)
        else:
            heads = tuple(talk.held.log.membership_heads())
            await served.replica.append(talk.id, Member(Revocation(host.key)), parents=heads)
        is_denied = lambda: host.replica.hub.state(talk.id) is SyncState.DENIED  # noqa: E731
        try:
            assert await host.replica.wait_for(is_denied, 30)
        finally:
            told.set()
        assert await host.replica.wait_for(lambda: here.order.answer(request) is not None, 30)
        answer = here.order.answer(request)
        assert answer is not None
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith(
            "CONVERSATION_DELETED: " if is_deleted else "KEY_REMOVED: "
        )
        assert len(answer.token_ids) < 600
