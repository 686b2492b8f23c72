"""Links of the kit: what they say of a peer that does not answer."""

import pytest

from antiphon.conformance.cases import Violation
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import RawLink
from antiphon.conformance.io.hub.run import acked
from replica.link import Message, Opened


class Silent(RawLink):
    """A link on which nothing comes in time."""

    def __init__(self) -> None:
        self.reason = ""

    async def send(self, *messages: Message) -> None: ...

    async def read(self, patience_s: float = 0) -> Message | None:
        raise TimeoutError


async def test_what_did_not_come_is_named() -> None:
    history = History(b"silent")
    link = Silent()
    with pytest.raises(Violation, match=r"^no Opened came within 20 s$"):
        await link.next_of(Opened)
    with pytest.raises(Violation, match=r"^no Pong came within 20 s$"):
        await link.until_pong()
    with pytest.raises(Violation, match=r"^no Ack of 2 more of 2 entries came within 20 s$"):
        await acked(link, history.genesis, history.say())
