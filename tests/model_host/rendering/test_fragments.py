"""The space at the end of a literal belongs to the text of the message behind it."""

from collections.abc import Iterable

import pytest

from model_host.rendering import Template
from model_host.rendering.fragments import Turn
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.render import Renderer
from model_host.rendering.room import Room
from model_host.rendering.template import Opening, check_template
from replica.log.body import Message, Speaker, Text, ToolCall
from tests.model_host.rendering.test_render import (
    CHATML,
    ENCODER,
    REQUEST,
    ByteEncoder,
    items,
    user,
)

SPACED = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|im_end|>{% endfor %}"
COUNTING = "{% for m in messages %}{{ messages|length }} {{ m.content }}{% endfor %}"
WORD, SPACED_WORD = 2_000, 2_001


class WordEncoder(ByteEncoder):
    """Has tokens for a word, and for the word behind a space."""

    def __init__(self, *, adds_space: bool = False) -> None:
        self._adds_space = adds_space

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        for token, word in ((SPACED_WORD, b" word"), (WORD, b"word")):
            for at in reversed(range(len(ids))):
                if ids[at : at + len(word)] == list(word):
                    ids[at : at + len(word)] = [token]
        return ids

    def encode_template(self, text: str, *, begins: bool = False) -> list[int]:
        is_spaced = begins and self._adds_space and text and text[0] not in "< "
        return super().encode_template(f" {text}" if is_spaced else text)

    def adds_space(self, literal: str, *, begins: bool = False) -> bool:
        return self._adds_space and (literal.endswith(">") or (begins and not literal))


def rendered(source: str, context: Iterable[ContextItem], encoder: ByteEncoder) -> list[int]:
    renderer = Renderer.load(Template(source), encoder)
    return list(renderer.extend(renderer.empty, [Listing(tuple(context))]).context.ids)


@pytest.mark.parametrize("source", [SPACED, COUNTING])
def test_the_space_before_a_text_is_tokenised_with_it(source: str) -> None:
    ids = rendered(source, items(user("word"), user("a word")), WordEncoder())
    assert ids.count(SPACED_WORD) == 2
    assert WORD not in ids


@pytest.mark.parametrize("source", [SPACED, COUNTING])
def test_it_stays_with_the_literal_where_no_text_follows(source: str) -> None:
    call = Message(Speaker.ASSISTANT, (ToolCall("c", "word", "{}"), Text("word")))
    for message in (call, user(""), Message(Speaker.USER, (Text(""), Text("word")))):
        ids = rendered(source, items(message), WordEncoder())
        assert ord(" ") in ids
        assert ids.count(SPACED_WORD) == 0


def test_contexts_come_out_alike_at_once_and_step_by_step() -> None:
    context = items(user("word"), user("more word"), REQUEST, user("word"), final=(2,))
    renderer = Renderer.load(Template(COUNTING), WordEncoder())
    whole = renderer.extend(renderer.empty, [Listing(tuple(context))])
    base = renderer.empty
    for item in context:
        base = renderer.extend(base, [Listing((item,))]).context
    assert base.ids == whole.context.ids
    assert base.digest == whole.context.digest


def test_a_text_that_is_tokenised_again_takes_its_room_once() -> None:
    renderer = Renderer.load(Template(COUNTING), WordEncoder())
    context = [Listing(tuple(items(user("x" * 60))))]
    whole = renderer.extend(renderer.empty, context).context
    room = Room(len(whole.ids) + 1)
    assert renderer.extend(renderer.empty, context, room).context == whole


def test_a_text_has_a_space_where_the_tokenizer_adds_one() -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    assert SPACED_WORD in rendered(source, items(user("word")), WordEncoder(adds_space=True))
    assert WORD in rendered(source, items(user("word")), WordEncoder())


BARE = "{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}"
MARKED = "{% for m in messages %}-{{ m.content }}<|im_end|>\n{% endfor %}"
WHOLE = "{% for m in messages %}{{ '-' if messages|length > 9 }}{{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize("source", [BARE, WHOLE])
def test_the_text_with_which_a_context_begins_has_a_space_too(source: str) -> None:
    ids = rendered(source, items(user("word"), user("word")), WordEncoder(adds_space=True))
    assert ids[0] == SPACED_WORD
    assert ids.count(WORD) == 1


def test_so_has_the_literal_with_which_it_begins() -> None:
    ids = rendered(MARKED, items(user("word"), user("word")), WordEncoder(adds_space=True))
    assert ids[:3] == [ord(" "), ord("-"), WORD]
    assert ids.count(ord(" ")) == 1
    assert check_template(Template(MARKED), WordEncoder(adds_space=True)).sentinels_equal_plain


def test_a_literal_loses_one_space_only() -> None:
    assert Opening.of(ENCODER, "a  ").before_space == ENCODER.encode("a ")
    assert Opening.of(ENCODER, "a\n").before_space is None


@pytest.mark.parametrize("source", [SPACED, CHATML])
def test_the_check_at_load_tokenises_as_contexts_are(source: str) -> None:
    report = check_template(Template(source), WordEncoder())
    assert report.append_only
    assert report.sentinels_equal_plain


def test_a_turn_ends_with_recorded_ids_alone() -> None:
    turn = Turn("assistant").with_content((1, 2), is_recorded=True)
    assert (turn.tokens, turn.last_id) == (2, 2)
    assert turn.with_content((3,), is_recorded=False).last_id == 2
