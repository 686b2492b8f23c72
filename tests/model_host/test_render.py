"""Rendering: append-only, control tokens from the template alone, recorded ids unchanged."""

from dataclasses import replace

import pytest

from model_host.refusals import (
    TemplateUnsupported,
)
from model_host.render import Context, ContextItem, Rendered, Renderer
from model_host.template import Template
from replica.ids import Digest, EntryId, PublicKey
from replica.log.body import (
    FinishReason,
    Generation,
    Message,
    Part,
    Request,
    Sampling,
    Speaker,
    Text,
)

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
START, END = 1000, 1001
CONTROL = {"<|im_start|>": START, "<|im_end|>": END}


class ByteEncoder:
    """A tokenizer of bytes with two control tokens: easy to read, exact."""

    digest = Digest(b"t" * 32)
    token_count = END + 1

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_template(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            for control, token in CONTROL.items():
                if text.startswith(control):
                    ids.append(token)
                    text = text[len(control) :]
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids

    def is_control(self, token_id: int) -> bool:
        return token_id in CONTROL.values()


TEMPLATE = Template(CHATML)
ENCODER = ByteEncoder()
RENDERER = Renderer.load(TEMPLATE, ENCODER)


def render(
    context: list[ContextItem], renderer: Renderer = RENDERER, base: Context | None = None
) -> Rendered:
    """Render a context as the list of one seal."""
    return renderer.extend(base or renderer.empty, [tuple(context)])


def shown(ids: tuple[int, ...] | list[int]) -> str:
    names = {token: control for control, token in CONTROL.items()}
    return "".join(names.get(i) or chr(i) for i in ids)


def items(*bodies: object, final: tuple[int, ...] = ()) -> list[ContextItem]:
    """Return a context in which each entry follows the one before."""
    ids = [EntryId(bytes([n]) * 32) for n in range(len(bodies))]
    return [
        ContextItem(ids[n], body, n in final, tuple(ids[:n][-1:]))  # type: ignore[arg-type]
        for n, body in enumerate(bodies)
    ]


def user(text: str) -> Message:
    return Message(Speaker.USER, (Text(text),))


def part(piece: Part) -> list[ContextItem]:
    return items(Message(Speaker.USER, (piece,)), REQUEST, final=(1,))


def generation(text: str, finish: FinishReason, *, closed: bool = True) -> Generation:
    ids = [*text.encode(), *([END] if closed else [])]
    return Generation(tuple(ids), (Text(text),), len(text), finish)


REQUEST = Request(PublicKey(b"h" * 32), Sampling())


def texts(context: list[ContextItem]) -> list[str]:
    return [shown(ids) for _, ids in render(context).tokens]


def test_each_entry_owns_the_text_since_the_previous_content():
    stop = generation("yes", FinishReason.STOP)
    context = items(user("hi"), REQUEST, stop, user("more"), REQUEST, final=(1, 4))
    assert texts(context) == [
        "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nhi",
        "<|im_end|>\n<|im_start|>assistant\n",
        "yes<|im_end|>",
        "\n<|im_start|>user\nmore",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_a_longer_context_never_changes_its_prefix():
    bodies = [
        user("a"), REQUEST, generation("b", FinishReason.STOP), user("c"), user("d"), REQUEST,
        generation("e", FinishReason.LENGTH, closed=False), user("f"), REQUEST,
    ]  # fmt: skip
    final = (1, 5, 8)
    whole = render(items(*bodies, final=final))
    for count in (2, 3, 6, 7, 9):
        part_of = render(items(*bodies[:count], final=final))
        assert whole.tokens[:count] == part_of.tokens


def test_an_answer_that_did_not_close_its_turn_is_closed_by_the_next_entry():
    cut = generation("yes", FinishReason.LENGTH, closed=False)
    context = items(user("hi"), REQUEST, cut, user("more"), REQUEST, final=(1, 4))
    assert texts(context)[3] == "<|im_end|>\n<|im_start|>user\nmore"


@pytest.mark.parametrize(
    "finish", [FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.INTERRUPTED]
)
def test_a_request_right_after_an_unfinished_answer_continues_it(finish: FinishReason):
    cut = generation("yes", finish, closed=False)
    context = items(user("hi"), REQUEST, cut, REQUEST, final=(1, 3))
    assert texts(context)[2:] == ["yes", ""]
    more = items(
        user("hi"), REQUEST, cut, REQUEST, generation(" sir", FinishReason.STOP), final=(1, 3)
    )
    assert texts(more)[2:] == ["yes", "", " sir<|im_end|>"]


def test_a_request_after_a_finished_answer_opens_a_new_turn():
    context = items(
        user("hi"), REQUEST, generation("yes", FinishReason.STOP), REQUEST, final=(1, 3)
    )
    assert texts(context)[3] == "\n<|im_start|>assistant\n"


def test_a_request_that_was_typed_over_renders_nothing_unless_it_ended_a_seal():
    inner = items(user("a"), REQUEST, user("b"), REQUEST, final=(3,))
    assert texts(inner)[1] == ""
    sealed = items(user("a"), REQUEST, user("b"), REQUEST, final=(1, 3))
    assert texts(sealed)[1:3] == [
        "<|im_end|>\n<|im_start|>assistant\n",
        "<|im_end|>\n<|im_start|>user\nb",
    ]


def test_control_tokens_typed_by_a_user_are_plain_text():
    ids = render(items(user("<|im_end|>"), REQUEST, final=(1,))).tokens[0][1]
    assert ids[-10:] == tuple(b"<|im_end|>")
    assert ids.count(END) == 1  # the one of the template's own system turn


def test_a_content_that_looks_like_a_sentinel_is_content():
    text = "\u2983antiphon000000\u2984"
    ids = render(items(user(text), REQUEST, final=(1,))).tokens[0][1]
    assert bytes(ids[-len(text.encode()) :]).decode() == text


def test_recorded_ids_are_inserted_as_they_were_produced():
    body = Generation((7, 8, END), (Text("never looked at"),), 3, FinishReason.STOP)
    assert render(items(user("a"), REQUEST, body, final=(1,))).tokens[2][1] == (
        7, 8, END,
    )  # fmt: skip


def test_a_request_that_queued_behind_an_unfinished_answer_opens_a_turn_of_its_own():
    cut = generation("yes", FinishReason.CANCELLED, closed=False)
    context = items(user("hi"), REQUEST, cut, REQUEST, final=(1, 3))
    queued = replace(context[3], parents=(context[1].entry,))
    assert texts([*context[:3], queued])[3] == "<|im_end|>\n<|im_start|>assistant\n"
    assert render([*context[:3], queued]).context.continued_tokens == 0


def test_rendering_counts_the_tokens_of_the_turn_a_request_continues():
    cut = generation("yes", FinishReason.LENGTH, closed=False)
    more = generation(" sir", FinishReason.CANCELLED, closed=False)
    done = generation("yes", FinishReason.STOP)

    def continued(*bodies: object, final: tuple[int, ...]) -> int:
        context = items(user("hi"), REQUEST, *bodies, final=(1, *final))
        return render(context).context.continued_tokens

    assert continued(cut, REQUEST, final=(3,)) == 3
    assert continued(cut, REQUEST, more, REQUEST, final=(3, 5)) == 7
    assert continued(done, REQUEST, final=(3,)) == 0
    # The first request was followed by the second without an answer, which opens a new turn.
    assert continued(cut, REQUEST, REQUEST, final=(4,)) == 0
    assert continued(cut, REQUEST, done, REQUEST, final=(3, 5)) == 0


def test_a_speaker_without_a_role_is_refused():
    for speaker in (0, 99):
        with pytest.raises(TemplateUnsupported, match=f"speaker {speaker}"):
            render(items(Message(speaker, (Text("a"),)), REQUEST))
