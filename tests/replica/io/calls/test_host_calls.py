"""A model host that can't be reached is named, in unary calls as in streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from replica.conversation.receipt import ReplayMode
from replica.ids import ConversationId, PublicKey
from replica.io.calls.host_calls import HostCalls, HostUnreachable, NotAHost
from tests.support.callers import serve_hub
from tests.support.talk import key_of

ID = ConversationId(bytes(32))


async def _drained(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


CALLS: dict[str, Callable[[HostCalls], Awaitable[object]]] = {
    "describe": lambda calls: calls.describe(),
    "export": lambda calls: _drained(calls.export(ID)),
    "replay": lambda calls: _drained(calls.replay(ID, ReplayMode.VERIFY)),
    "import": lambda calls: calls.import_([b"part"]),
}


@pytest.mark.parametrize("is_authenticated", [False, True])
@pytest.mark.parametrize("name", CALLS)
async def test_a_host_that_does_not_answer_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, *, is_authenticated: bool
) -> None:
    async with HostCalls("127.0.0.1:1", key_of(1), None) as calls:  # nobody listens at port 1
        if is_authenticated:  # as where a host ends between its ticket and the call

            async def ticketed() -> PublicKey:
                calls._ticket = b"ticket"
                return PublicKey(bytes(32))

            monkeypatch.setattr(calls, "authenticate", ticketed)
        with pytest.raises(HostUnreachable):
            await CALLS[name](calls)


async def test_a_hub_s_address_is_said_to_be_no_host_s(tmp_path: Path) -> None:
    async with (
        serve_hub(tmp_path) as served,
        HostCalls(served.hub.address, key_of(1), None) as calls,
    ):
        with pytest.raises(NotAHost, match="is not the address of a model host") as refused:
            await calls.describe()
    assert (refused.value.reason, refused.value.retryable) == ("NOT_A_HOST", False)
