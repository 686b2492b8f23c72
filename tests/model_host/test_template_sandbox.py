"""A template in Jinja's sandbox: what it may use, and what becomes of its faults."""

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model_host.template_sandbox import (
    MESSAGE_TEXT_BYTES_MAX,
    TEXT_BYTES_MAX,
    Sandbox,
    TemplateFault,
)
from tests.model_host.templates import ALTERNATING, LLAMA31, QWEN

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


def test_a_template_that_asks_for_the_date_only_where_it_can_goes_on_without_it() -> None:
    guarded = "{% if strftime_now is defined %}{{ strftime_now('%d') }}{% else %}undated{% endif %}"
    assert Sandbox(guarded).render(HELLO, header=False) == "undated"
    with pytest.raises(TemplateFault, match="log it as a system message"):
        Sandbox("{{ strftime_now('%Y') }}").render(HELLO, header=False)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{% break %}{{ m.content }}{% endfor %}", ""),
        ("{% for m in messages %}{% if m %}{% continue %}{% endif %}a{% endfor %}b", "b"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hello!"),
        ("{% set x = 1 %}{% generation %}{% set x = 2 %}{% endgeneration %}{{ x }}", "1"),
        ("{{ {'b': 'é<', 'a': 1} | tojson }}", '{"b": "é<", "a": 1}'),
        ("{{ {'b': 'é', 'a': 1} | tojson(true, sort_keys=true) }}", '{"a": 1, "b": "\\u00e9"}'),
        ("{{ {'a': [1, 2]} | tojson(separators=(',', ':')) }}", '{"a":[1,2]}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
    ],
)
def test_what_libraries_add_to_jinja_is_there(source: str, text: str) -> None:
    assert Sandbox(source).render(HELLO, header=False) == text


@pytest.mark.parametrize(
    ("source", "fault"),
    [("{{ messages | random }}", "does not compile"), ("{{ lipsum() }}", "refuses this context")],
)
def test_a_template_draws_nothing(source: str, fault: str) -> None:
    with pytest.raises(TemplateFault, match=fault):
        Sandbox(source).render(HELLO, header=False)


MACRO = "{% macro f() %}x{% endmacro %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | map(attribute='role') }}",
        "{{ raise_exception }}",
        "{{ [{'a': (raise_exception,)}] }}",
        "{{ {messages[0].items: 1} }}",
        "{{ namespace(a=raise_exception) }}",
        MACRO + "{{ [f] }}",
        "{{ 'a' ~ raise_exception }}",
        "{{ [1] | map('string') ~ '' }}",
        "{{ [raise_exception] | join }}",
        "{{ [1] | join(raise_exception) }}",
        "{{ messages | join(',', attribute='items') }}",
        "{{ [raise_exception] | map('string') | list }}",
        "{{ raise_exception | e }}{{ raise_exception | upper }}",
        "{{ 'x' | replace('x', raise_exception) }}",
        "{{ '%s' | format(raise_exception) }}",
        "{{ '%s' % [messages[0].items] }}",
        "{{ '{}'.format(raise_exception) }}",
        "{{ '{0.items}'.format({}) }}",
        "{{ '{a}'.format_map({'a': raise_exception}) }}",
        "{{ ('{}' | safe).format(raise_exception) }}",
        "{{ ('x' | safe).replace('x', raise_exception) }}",
        "{{ ('-' | safe).join([raise_exception]) }}",
        "{{ ('x' | e).escape(raise_exception) }}",
        "{{ ('x' | safe).escape(messages | map(attribute='role')) }}",
        "{{ {'a': raise_exception} | xmlattr }}",
        "{% filter upper %}{{ raise_exception }}{% endfilter %}",
        "{% set x %}{{ raise_exception }}{% endset %}{{ x }}",
        "{% autoescape true %}{{ raise_exception }}{% endautoescape %}",
        "{{ raise_exception(raise_exception) }}",
    ],
)
def test_a_template_writes_no_address_of_its_process(source: str) -> None:
    with pytest.raises(TemplateFault, match="a value that is no text, number or list"):
        Sandbox(source).render(HELLO, header=False)


@pytest.mark.parametrize("operand", ["messages[0].keys()", "messages[0].items()"])
def test_a_template_writes_nothing_in_the_order_of_hashes(operand: str) -> None:
    source = "{% for k in messages[0].keys() - " + operand + " %}{{ k }}{% endfor %}"
    with pytest.raises(TemplateFault, match="the order of a set"):
        Sandbox(source).render(HELLO, header=False)
    with pytest.raises(TemplateFault, match="pprint"):
        Sandbox("{{ messages | pprint }}")


@pytest.mark.parametrize(
    "source",
    [
        QWEN,
        LLAMA31,
        ALTERNATING,
        "{{ messages }}{{ 1.5 }}{{ true }}{{ none }}{{ nothing }}{{ [nothing, ('a', 1)] }}",
        "{{ 'a' ~ 1 ~ none ~ nothing ~ [1, 'x'] ~ (2 ~ 3) }}{{ 3 - 1 }}{{ 7 % 4 }}",
        "{{ messages | map(attribute='role') | join(', ') }}",
        "{{ messages | join(attribute='role') }}",
        "{{ ', '.join(messages | map(attribute='role')) }}{{ nothing | join }}",
        "{{ '%s %d%%' % ('a', 1) }}{{ '%s' | format(messages) }}",
        "{{ '{a}{b!r:>5}'.format(a=1, b='x') }}",
        "{{ ('{}' | safe).format('<') }}{{ ('-' | safe).join(['<', 1 | string]) }}",
        MACRO + "{{ f() ~ f() }}",
        "{% autoescape true %}{{ '<' ~ 'a' }}{{ ['<'] | join }}{{ '<' | safe }}{% endautoescape %}",
        "{{ ' a ' | trim | upper | center(9) | replace('A', 'b') }}{{ {'a': 1} | xmlattr }}",
        "{{ 'http://a.b' | urlize }}{{ '<a>' | e }}{{ {'a': 1} | urlencode }}",
        "{{ 'a b' | wordwrap(1) }}",
        "{{ messages | batch(1) | list }}{{ messages | groupby('role') }}",
        "{{ messages[0] | dictsort }}",
        "{% if 'a' ~ 1 == 'a1' %}{% set x %}{{ messages | length }}{% endset %}{{ x }}{% endif %}",
    ],
)
def test_what_has_no_address_is_written_as_jinja_does(source: str) -> None:
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    turns = [*HELLO, {"role": "assistant", "content": "a < b"}, *HELLO]
    for header in (True, False):
        expected = plain.from_string(source).render(
            messages=turns, add_generation_prompt=header, bos_token="<s>", eos_token="", tools=None
        )
        assert Sandbox(source, bos_token="<s>").render(turns, header=header) == expected


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
