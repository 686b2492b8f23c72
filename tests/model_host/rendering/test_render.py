"""Rendering: append-only, control tokens from the template alone, recorded ids unchanged."""

from dataclasses import replace

import pytest

from model_host.engine.gguf_file import ModelFile
from model_host.engine.tokenizer import Tokenizer
from model_host.refusals import (
    TemplateUnsupported,
    ToolsUnsupported,
)
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.render import Context, Rendered, Renderer
from model_host.rendering.template import Template
from model_host.rendering.tool_formats import HERMES, NO_TOOLS, REPLACING
from model_host.template_sandbox import Messages
from replica.conversation import Asked
from replica.ids import Digest, EntryId, PublicKey
from replica.log.body import (
    FinishReason,
    Generation,
    Message,
    Outcome,
    Part,
    Projected,
    Request,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Tools,
)
from tests.model_host.templates import ALTERNATING, GEMMA3, LLAMA2, NEMO

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
    token_bytes_max = 1

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_template(self, text: str, *, begins: bool = False) -> list[int]:
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

    def adds_space(self, literal: str, *, begins: bool = False) -> bool:
        return False

    def is_control(self, token_id: int) -> bool:
        return token_id in CONTROL.values()


TEMPLATE = Template(CHATML)
ENCODER = ByteEncoder()
RENDERER = Renderer.load(TEMPLATE, ENCODER)


def render(
    context: list[ContextItem], renderer: Renderer = RENDERER, base: Context | None = None
) -> Rendered:
    """Render a context as the list of one seal."""
    return renderer.extend(base or renderer.empty, [Listing(tuple(context))])


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


def texts(context: list[ContextItem], renderer: Renderer = RENDERER) -> list[str]:
    return [shown(ids) for _, ids in render(context, renderer).tokens]


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


def test_the_real_models_template_gives_the_same_by_pairs_and_as_a_whole(
    model_file: ModelFile, tokenizer: Tokenizer
):
    template = Template(model_file.template)
    local, whole = Renderer.load(template, tokenizer), Renderer(template, tokenizer, None)
    assert local.is_local
    end = tokenizer.data.tokens.index("<|im_end|>")
    done = Generation((*tokenizer.encode("Yes: <b>"), end), (Text("y"),), 1, FinishReason.STOP)
    cut = Generation((*tokenizer.encode("An"),), (Text("An"),), 2, FinishReason.LENGTH)
    result = Message(Speaker.TOOL, (ToolResult("1", (Text("7"),)),))
    bodies = (
        system("Be brief."), SUM, user("\n <|im_end|> hi "), REQUEST, done, user(""), REQUEST, cut,
        REQUEST, done, result, SUM, user("東京🦊"), REQUEST,
    )  # fmt: skip
    context = items(*bodies, final=(3, 6, 8, 13))
    assert render(context, local).tokens == render(context, whole).tokens


# --- tools ------------------------------------------------------------------------------

SUM = Tools((ToolDefinition("sum", "Adds.", "{}"),))
SECTION = "".join(piece.text for piece in HERMES.section(SUM.tools, replaces=False))


def system(text: str) -> Message:
    return Message(Speaker.SYSTEM, (Text(text),))


def test_tools_behind_a_system_message_continue_its_turn():
    context = items(system("Be brief."), SUM, user("hi"), REQUEST, final=(3,))
    assert texts(context)[:3] == [
        "<|im_start|>system\nBe brief.",
        f"\n\n{SECTION}",
        "<|im_end|>\n<|im_start|>user\nhi",
    ]


def test_tools_at_the_beginning_open_a_system_turn_that_a_system_message_continues():
    context = items(SUM, system("Be brief."), user("hi"), REQUEST, final=(3,))
    assert texts(context)[:3] == [
        f"<|im_start|>system\n{SECTION}",
        "\n\nBe brief.",
        "<|im_end|>\n<|im_start|>user\nhi",
    ]


def test_tools_alone_come_behind_the_system_text_of_the_template():
    """Their turn took its place, so that a model lost the words it is trained with."""
    assert texts(items(SUM, user("hi"), REQUEST, final=(2,)))[:2] == [
        f"<|im_start|>system\nBe kind\n\n{SECTION}",
        "<|im_end|>\n<|im_start|>user\nhi",
    ]


def test_a_second_system_message_opens_its_own_turn_where_there_are_no_tools():
    context = items(system("a"), system("b"), REQUEST, final=(2,))
    assert texts(context)[1] == "<|im_end|>\n<|im_start|>system\nb"


def test_tools_in_mid_conversation_open_a_system_turn_at_their_own_place():
    done = generation("yes", FinishReason.STOP)
    context = items(SUM, user("hi"), REQUEST, done, SUM, Tools(()), REQUEST, final=(2, 6))
    assert texts(context)[4:] == [
        f"\n<|im_start|>system\n{REPLACING}{SECTION}",
        f"\n\n{NO_TOOLS}",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_no_tools_where_there_never_were_any_render_as_nothing():
    assert texts(items(Tools(()), user("hi"), REQUEST, final=(2,)))[0] == ""


def test_the_tools_in_effect_are_those_of_the_last_entry():
    def in_effect(*bodies: Tools) -> object:
        return render(items(*bodies)).context.place.tools

    assert in_effect(Tools(())) is None
    assert in_effect(SUM) == SUM.tools
    assert in_effect(SUM, Tools(())) == ()


def test_a_template_without_system_turns_refuses_tools_by_name():
    renderer = Renderer.load(Template(ALTERNATING), ENCODER)
    with pytest.raises(ToolsUnsupported):
        render(items(SUM, user("hi"), REQUEST, final=(2,)), renderer)


def test_a_template_without_system_turns_refuses_a_system_message_from_the_first_request_on():
    renderer = Renderer.load(Template(NEMO), ENCODER)
    with pytest.raises(TemplateUnsupported, match="no system turns"):
        render(items(system("Be kind."), user("hi"), REQUEST, final=(2,)), renderer)


@pytest.mark.parametrize("source", [ALTERNATING, GEMMA3, LLAMA2, NEMO])
def test_a_second_answer_in_a_row_is_refused_where_turns_must_alternate(source: str):
    """It would stand in every later context, which the template refuses too."""
    renderer = Renderer.load(Template(source), ENCODER)
    done = generation("yes", FinishReason.STOP)
    first = render(items(user("hi"), REQUEST, done, user("and?"), REQUEST, final=(1, 4)), renderer)
    again = ContextItem(EntryId(b"\xaa" * 32), REQUEST, is_final=True)
    base = renderer.extend(first.context, [])
    with pytest.raises(TemplateUnsupported, match="turn of assistant, which aaaaaaaaaaaa opens"):
        answered = ContextItem(EntryId(b"\xbb" * 32), done, is_final=False)
        renderer.extend(base.context, [Listing((answered, again))])


def test_a_refusal_names_the_turn_and_the_words_of_the_template():
    renderer = Renderer.load(Template(LLAMA2), ENCODER)
    done = generation("yes", FinishReason.STOP)
    context = items(
        user("hi"), REQUEST, done, system("Be kind."), user("more"), REQUEST, final=(1, 5)
    )
    words = "a turn of system, which 030303030303 opens behind one of assistant: Conversation roles"
    with pytest.raises(TemplateUnsupported, match=words):
        render(context, renderer)


HEADERS = (
    LLAMA2,
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ messages|length }}<think>{% endif %}",
)


@pytest.mark.parametrize("source", HEADERS, ids=["constant", "counting"])
def test_a_header_stays_as_it_was_when_the_answer_was_asked_for(source: str):
    renderer = Renderer.load(Template(source, bos_token="<s>", eos_token="</s>"), ENCODER)
    done = generation("yes", FinishReason.STOP)
    context = items(user("hi"), REQUEST, done, user("more"), REQUEST, done, final=(1, 4))
    shorter, whole = render(context[:2], renderer), render(context, renderer)
    assert whole.tokens[:2] == shorter.tokens
    assert whole.tokens[:5] == render(context[:5], renderer).tokens
    extended = render(context[2:], renderer, shorter.context)
    assert extended.context.digest == whole.context.digest
    assert Renderer(renderer.template, ENCODER).extend(
        renderer.empty, [Listing(tuple(context))]
    ).tokens == whole.tokens  # fmt: skip


def test_a_context_takes_one_run_of_the_template_where_its_headers_are_known():
    here, runs = Template(LLAMA2), list[int]()

    def run(messages: Messages, *, header: bool) -> str:
        runs.append(len(messages))
        return here.render_messages(messages, header=header)

    renderer = Renderer.load(Template(LLAMA2, run=run), ENCODER)
    assert not renderer.is_local
    runs.clear()
    done = generation("yes", FinishReason.STOP)
    bodies = [user("hi"), REQUEST, done] * 20
    render(items(*bodies, final=tuple(range(1, 60, 3))), renderer)
    assert runs == [40]


def test_a_turn_behind_one_that_is_refused_everywhere_is_refused_too():
    source = "{% for m in messages %}{{ m.content if m.role == 'user' else 1 / 0 }}{% endfor %}"
    renderer = Renderer.load(Template(source), ENCODER)
    assert renderer.is_local
    with pytest.raises(TemplateUnsupported, match="refuses a turn of assistant"):
        render(items(REQUEST, user("hi"), final=(0,)), renderer)


def test_messages_in_a_row_are_one_turn_where_turns_must_alternate():
    renderer = Renderer.load(Template(ALTERNATING), ENCODER)
    done = generation("yes", FinishReason.LENGTH, closed=False)
    context = items(user("hi"), user("you"), REQUEST, done, user("more"), REQUEST, final=(2, 5))
    assert texts(context, renderer) == [
        "[INST] hi",
        "\n\nyou",
        " [/INST]",
        "yes",
        "</s>[INST] more",
        " [/INST]",
    ]


def test_results_of_tools_in_a_row_are_one_turn_of_the_user_there():
    renderer = Renderer.load(Template(ALTERNATING), ENCODER)
    called = Generation((97,), (ToolCall("1", "f", "{}"),), 0, FinishReason.TOOL_CALLS)
    results = [Message(Speaker.TOOL, (ToolResult(n, (Text(n),)),)) for n in ("1", "2")]
    context = items(user("hi"), REQUEST, called, *results, REQUEST, final=(1, 5))
    assert texts(context, renderer)[3:5] == [
        "</s>[INST] <tool_response>\n1\n</tool_response>",
        "\n\n<tool_response>\n2\n</tool_response>",
    ]


def test_results_of_another_key_than_the_executor_render_as_nothing_and_say_so():
    asked = Asked(PublicKey(b"r"), PublicKey(b"e"))
    called = Generation((97, END), (ToolCall("1", "f", "{}"),), 0, FinishReason.TOOL_CALLS)
    result = Message(Speaker.TOOL, (Text("so: "), ToolResult("1", (Text("42"),))))

    def rendered(author: bytes) -> Rendered:
        context = items(user("hi"), REQUEST, called, result, REQUEST, final=(1, 4))
        context[2] = replace(context[2], answered=asked)
        context[3] = replace(context[3], author=PublicKey(author))
        return render(context)

    foreign, own = rendered(b"x"), rendered(b"e")
    assert shown(foreign.tokens[3][1]).endswith("<|im_start|>tool\nso: ")
    assert foreign.projections == (Projected(foreign.tokens[3][0], 1, Outcome.DROPPED),)
    assert foreign.context.place.ledger.open_calls == ("1",)
    assert "42" in shown(own.tokens[3][1])
    assert own.projections == ()
    assert own.context.place.ledger.open_calls == ()
