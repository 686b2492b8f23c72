"""A template in Jinja's sandbox: what it may use, and what becomes of its faults."""

import pytest

from model_host.template_sandbox import (
    MESSAGE_TEXT_BYTES_MAX,
    TEXT_BYTES_MAX,
    Sandbox,
    TemplateFault,
)

HELLO = [{"role": "user", "content": "hello"}]
EACH = "{% for m in messages %}{{ m.content }}{% endfor %}"


def test_a_template_has_the_messages_the_header_and_the_texts_of_two_tokens() -> None:
    source = "{{ bos_token }}" + EACH + "{% if add_generation_prompt %}>{% endif %}{{ tools }}"
    sandbox = Sandbox(source, bos_token="<s>")
    assert sandbox.render(HELLO, header=True) == "<s>hello>None"
    assert sandbox.render(HELLO, header=False) == "<s>helloNone"


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        # Errors of Python, not of Jinja.
        "{% for a in messages %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    ],
    ids=["syntax", "blocks", "depth"],
)
def test_what_does_not_compile_is_a_fault(source: str) -> None:
    with pytest.raises(TemplateFault, match="does not compile"):
        Sandbox(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 // 0 }}",
        "{{ raise_exception('no') }}",
        "{{ strftime_now('%Y') }}",
        "{{ messages[9].a }}",
    ],
)
def test_what_does_not_render_is_a_fault(source: str) -> None:
    with pytest.raises(TemplateFault, match="refuses this context"):
        Sandbox(source).render(HELLO, header=False)


@pytest.mark.parametrize(
    ("source", "fault"),
    [("{{ messages | random }}", "does not compile"), ("{{ lipsum() }}", "refuses this context")],
)
def test_a_template_draws_nothing(source: str, fault: str) -> None:
    with pytest.raises(TemplateFault, match=fault):
        Sandbox(source).render(HELLO, header=False)


def test_the_words_of_a_template_are_cut() -> None:
    with pytest.raises(TemplateFault) as caught:
        Sandbox("{{ raise_exception('no ' * 1000) }}").render(HELLO, header=False)
    assert len(str(caught.value)) < 300


NESTED = (
    "{% set ns = namespace(x=[]) %}{% for i in range(3000) %}{% set ns.x = [ns.x] %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('\\ud800 bad') }}", "? bad"),
        ("{{ raise_exception('\\x1b[31m red\\n\\x00') }}", "?[31m red ?"),
        ("{{ raise_exception('x' * 100000000) }}", "xxx"),
        (NESTED + "{{ raise_exception(ns.x) }}", "no reason given"),
        ("{{ raise_exception(nothing) }}", "no reason given"),
        ("{{ '\\ud800' }}", "encode"),
        (NESTED + "{{ ns.x }}", "recursion"),
    ],
    ids=["surrogate", "controls", "huge", "nested", "undefined", "written", "nested and written"],
)
def test_the_words_of_a_template_are_a_line_that_can_be_logged(source: str, words: str) -> None:
    with pytest.raises(TemplateFault, match="refuses this context: ") as caught:
        Sandbox(source).render(HELLO, header=False)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_text_is_bounded_by_the_number_of_messages() -> None:
    size = TEXT_BYTES_MAX + MESSAGE_TEXT_BYTES_MAX
    sandbox = Sandbox("{{ 'x' * (" + str(size) + " - messages|length + 1) }}")
    assert len(sandbox.render(HELLO, header=False)) == size
    with pytest.raises(TemplateFault, match="writes"):
        Sandbox("{{ 'é' * " + str(size // 2 + 1) + " }}").render(HELLO, header=False)
