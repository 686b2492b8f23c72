"""A context that has no room is refused before its texts are tokenised."""

import pytest

from model_host.refusals import ContextTooLong
from model_host.rendering.listing import Listing
from model_host.rendering.render import Renderer
from model_host.rendering.room import Room, RoomyEncoder
from model_host.rendering.template import Template
from tests.model_host.rendering.test_render import CHATML, ByteEncoder, items, user

REWRITING = "{% for m in messages %}{{ (messages|length|string) + m['content'] }}{% endfor %}"


class Pairs(ByteEncoder):
    """A token stands for at most two bytes; counts the bytes that it tokenises."""

    token_bytes_max = 2

    def __init__(self) -> None:
        self.encoded_bytes = 0

    def encode(self, text: str) -> list[int]:
        self.encoded_bytes += len(text.encode())
        return super().encode(text)


def test_a_text_too_long_for_any_tokens_is_not_tokenised() -> None:
    pairs = Pairs()
    encoder = RoomyEncoder(pairs, Room(10), 4)
    assert len(encoder.encode("x" * 10)) == 10
    with pytest.raises(ContextTooLong, match="at least 10 tokens, the model holds 10"):
        encoder.encode("x" * 11)
    with pytest.raises(ContextTooLong, match="has 10 tokens, the model holds 10 with the answer"):
        Room(10).check(10, is_all=True)
    assert pairs.encoded_bytes == 10


def test_tokens_are_counted_as_they_come() -> None:
    encoder = RoomyEncoder(Pairs(), Room(10), 4)
    encoder.note(5)
    with pytest.raises(ContextTooLong):
        encoder.encode("x")
    with pytest.raises(ContextTooLong, match="the context has at least 10 tokens"):
        encoder.note(1)


@pytest.mark.parametrize("source", [CHATML, REWRITING])
def test_nothing_is_tokenised_behind_the_entry_that_exceeds_the_room(source: str) -> None:
    pairs = Pairs()
    renderer = Renderer.load(Template(source), pairs)
    context = [Listing(tuple(items(*(user("x" * 60) for _ in range(50)))))]
    whole = renderer.extend(renderer.empty, context)
    pairs.encoded_bytes = 0
    with pytest.raises(ContextTooLong):
        renderer.extend(renderer.empty, context, Room(200))
    assert pairs.encoded_bytes <= 4 * 60
    roomy = renderer.extend(renderer.empty, context, Room(len(whole.context.ids) + 1))
    assert roomy == whole


@pytest.mark.parametrize("source", [CHATML, REWRITING])
def test_the_tokens_of_the_context_before_count(source: str) -> None:
    pairs = Pairs()
    renderer = Renderer.load(Template(source), pairs)
    base = renderer.extend(renderer.empty, [Listing(tuple(items(user("x" * 60))))]).context
    more = [Listing(tuple(items(user("y" * 60))))]
    pairs.encoded_bytes = 0
    with pytest.raises(ContextTooLong):
        renderer.extend(base, more, Room(61))
    assert pairs.encoded_bytes == 0
