"""The entries that a seal lists, as far as rendering looks ahead among them."""

import pytest

from model_host.rendering.listing import ContextItem, Listing
from replica.ids import EntryId, PublicKey
from replica.log import (
    Body,
    FinishReason,
    Generation,
    Message,
    Request,
    Sampling,
    Speaker,
    Text,
    Tools,
)

OFFER = Tools(())
SYSTEM, USER = (Message(by, (Text("x"),)) for by in (Speaker.SYSTEM, Speaker.USER))
ASKED = Request(PublicKey(b"h" * 32), Sampling())
DONE = Generation((5,), (Text("x"),), 1, FinishReason.STOP)


def listing(*bodies: Body | None) -> Listing:
    last = len(bodies) - 1
    return Listing(
        tuple(ContextItem(EntryId(bytes([n]) * 32), b, n == last) for n, b in enumerate(bodies))
    )


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ((OFFER, SYSTEM, ASKED), True),
        ((OFFER, None, OFFER, ASKED, SYSTEM, ASKED), True),
        ((OFFER, USER, SYSTEM, ASKED), False),
        ((OFFER, DONE, SYSTEM, ASKED), False),
        ((OFFER, ASKED), False),
        ((OFFER,), False),
    ],
)
def test_a_system_message_continues_the_turn_unless_another_turn_opens_before_it(
    bodies: tuple[Body | None, ...], expected: bool
):
    assert listing(*bodies).has_system_behind(0) is expected
