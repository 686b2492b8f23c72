"""Templates: split at sentinels, checked at load, and local ones by pairs of roles."""

import pytest

from model_host.refusals import TemplateUnsupported
from model_host.rendering.template import (
    Template,
    check_template,
    find_headers,
    find_pairs,
    has_system_turns,
    is_local,
)
from tests.model_host.rendering.test_render import CHATML, ENCODER, TEMPLATE
from tests.model_host.templates import (
    ALTERNATING,
    GEMMA2,
    GEMMA3,
    LLAMA2,
    LLAMA31,
    MISTRAL,
    NEMO,
    QWEN,
)


def test_the_self_check_accepts_chatml():
    report = check_template(TEMPLATE, ENCODER)
    assert report.append_only
    assert report.sentinels_equal_plain


def test_the_self_check_reports_a_template_that_rewrites_history():
    rewriting = Template(
        "{% for m in messages %}{{ (messages|length|string) + m['role'] + m['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
    )
    assert not check_template(rewriting, ENCODER).append_only


@pytest.mark.parametrize(
    "source", [LLAMA2, LLAMA31, QWEN, GEMMA3, ALTERNATING, GEMMA2, MISTRAL, NEMO]
)
def test_the_check_takes_templates_with_and_without_system_turns(source: str):
    template = Template(source, bos_token="<s>", eos_token="</s>")
    assert has_system_turns(template) == (source in {LLAMA2, LLAMA31, QWEN, GEMMA3})
    assert check_template(template, ENCODER).sentinels_equal_plain


def test_a_template_that_renders_no_answer_of_a_user_is_refused():
    with pytest.raises(TemplateUnsupported):
        check_template(Template("{{ messages[0].content }}"), ENCODER)


LAST_TURN_THINKS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if loop.last and m['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COUNTING = "{% for m in messages %}{{ messages|length }}{{ m['content'] }}{% endfor %}"
COUNTING_HEADER = "{% if add_generation_prompt %}{{ messages|length }}:{% endif %}"
HEADER_THINKS = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% endif %}"
)


@pytest.mark.parametrize("source", [CHATML, LLAMA31, QWEN])
def test_the_literals_of_a_local_template_are_those_of_pairs_of_roles(source: str):
    template = Template(source, bos_token="<s>")
    pairs = find_pairs(template)
    assert pairs is not None
    turns = ["system", "user", "assistant", "user", "user", "assistant", "tool"]
    found = template.literals(turns, header=False)
    assert found[:-1] == [pairs[key] for key in zip([None, *turns], turns, strict=False)]
    headers = find_headers(template)
    assert is_local(pairs, headers)
    assert template.literals(turns, header=True)[-1] == headers["tool"]
    assert headers["tool"] == pairs["tool", "assistant"]


def test_a_local_template_may_refuse_pairs_of_roles():
    pairs = find_pairs(Template(ALTERNATING))
    assert pairs is not None
    assert pairs["user", "assistant"] == " [/INST]"
    assert pairs[None, "assistant"] is None
    assert pairs["user", "user"] is None


def test_a_header_is_not_always_the_literal_that_opens_an_answer():
    thinks, llama = Template(HEADER_THINKS), Template(LLAMA2)
    pairs, headers = find_pairs(thinks), find_headers(thinks)
    assert pairs is not None
    assert is_local(pairs, headers)
    assert (pairs["user", "assistant"], headers["user"]) == ("<assistant>", "<assistant><think>")
    assert find_headers(llama) == {"user": " [/INST]"}
    assert llama.literals(["user", "assistant"], header=False)[1] == " [/INST] "


def test_headers_that_look_further_than_one_turn_are_not_known():
    assert find_headers(Template(COUNTING + COUNTING_HEADER)) == {}
    aside = Template(HEADER_THINKS.replace("add_", "messages[0].role != 'system' and add_"))
    headers, pairs = find_headers(aside), find_pairs(aside)
    assert headers == {}
    assert pairs is not None
    assert not is_local(pairs, headers)
    assert is_local({(None, "user"): "<user>", ("user", "assistant"): None}, {})


def test_a_header_that_one_role_before_it_leaves_open_is_known_behind_the_others():
    """As that of Granite, which has none behind a lone system turn."""
    alone = "(messages|length > 1 or messages[0].role != 'system') and add_"
    aside = Template(HEADER_THINKS.replace("add_", alone))
    headers = find_headers(aside)
    assert headers.keys() == {"user", "assistant", "tool"}
    assert not is_local(find_pairs(aside), headers)


LADDER = (
    "{% set behind = {'system': ['user'], 'user': ['assistant'], 'assistant': ['user', 'tool'],"
    " 'tool': ['assistant']} %}{% for m in messages %}"
    "{% if m.role not in (behind[messages[loop.index0 - 1].role] if loop.index0 else ['system']) %}"
    "{{ raise_exception('another order') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A template that first has a turn of tools as the fourth."""


def test_a_template_is_not_local_where_a_role_is_first_rendered_in_four_turns():
    assert find_pairs(Template(LADDER)) is None
    early = LADDER.replace("else ['system']", "else ['system', 'user']")
    pairs = find_pairs(Template(early))
    assert pairs is not None
    assert (pairs["tool", "assistant"], pairs["tool", "user"]) == ("<assistant>", None)


@pytest.mark.parametrize("source", [LAST_TURN_THINKS, COUNTING])
def test_a_template_that_looks_further_than_two_turns_is_not_local(source: str):
    assert find_pairs(Template(source)) is None


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m['content']|upper }}{% endfor %}",
        "{% for m in messages %}{{ m['content'] + m['content'] }}{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ strftime_now('%Y') }}",
        "{% for m in messages %}",
        "{{ messages.__class__.__mro__ }}",
        "{{ 1 // 0 }}{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "{% for m in messages %}{{ m['content'] + 1 }}{% endfor %}",
    ],
)
def test_a_template_that_can_not_be_split_or_run_is_refused(source: str):
    with pytest.raises(TemplateUnsupported):
        Template(source).literals(["user"], header=True)


def test_a_template_with_another_text_for_its_tokens_has_another_digest():
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    digests = {
        Template(source, bos_token=bos, eos_token=eos).digest
        for bos, eos in (("", ""), ("<s>", ""), ("", "<s>"), ("<s>", "</s>"), ("<s></s>", ""))
    }
    assert len(digests) == 5
