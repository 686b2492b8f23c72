"""Formats of tools: recognised by what a template writes, their texts, and calls read back."""

import json

import pytest

from model_host.rendering.template import Template
from model_host.rendering.tool_formats import (
    DEPTH_MAX,
    HERMES,
    LLAMA3,
    CallText,
    ToolFormat,
    definition,
    format_of,
)
from model_host.template_sandbox import Sandbox
from replica.log.body import ToolDefinition
from tests.model_host.rendering.test_render import CHATML
from tests.model_host.templates import ALTERNATING, LLAMA31, QWEN

SUM = ToolDefinition("sum", 'Adds "numbers".', '{"type": "object", "properties": {}}')


@pytest.mark.parametrize(
    ("source", "expected"),
    [(QWEN, HERMES), (LLAMA31, LLAMA3), (CHATML, HERMES), (ALTERNATING, HERMES)],
)
def test_a_template_is_recognised_by_the_call_it_writes(source: str, expected: ToolFormat):
    assert format_of(Template(source)) is expected


def test_a_definition_is_the_json_that_templates_write():
    assert definition(SUM) == json.dumps(
        {
            "type": "function",
            "function": {
                "name": "sum",
                "description": 'Adds "numbers".',
                "parameters": {"type": "object", "properties": {}},
            },
        }
    )


def test_the_section_of_hermes_is_the_one_its_own_template_writes():
    tools = [SUM, ToolDefinition("now", "", "{}")]
    native = Sandbox(QWEN)._template.render(
        messages=[{"role": "system", "content": "Hi."}],
        tools=[json.loads(definition(tool)) for tool in tools],
        add_generation_prompt=False,
    )
    section = "".join(piece.text for piece in HERMES.section(tools, replaces=False))
    assert native == f"<|im_start|>system\nHi.\n\n{section}<|im_end|>\n"


@pytest.mark.parametrize("known", [HERMES, LLAMA3])
def test_a_call_is_read_back_with_its_arguments_as_they_were_written(known: ToolFormat):
    arguments = '{"a":  [1.50, "}"], "b": {}}'
    body = f'{{"name": "f\\u00e9", "{known.arguments_key}": {arguments}}}'
    assert known.read_call(body) == CallText("fé", arguments)
    assert known.read_call(f"\n {body} \n") == CallText("fé", arguments)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"name": "f"}',
        '{"name": "f", "parameters": {}}',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {}} and more',
        '{"name": "f", "arguments": {}',
        '{"name": "f", "arguments": {"a": ' + "[" * 100_000,
        '{"name": "\\q", "arguments": {}}',
        '{"name": "\\ud800", "arguments": {}}',
    ],
)
def test_a_text_that_is_no_call_is_none(text: str):
    assert HERMES.read_call(text) is None


def nested(depth: int) -> str:
    """Return the text of a call whose arguments have so many nested containers."""
    return f'{{"name": "f", "arguments": {{"a": {"[" * (depth - 1)}{"]" * (depth - 1)}}}}}'


def under(frames: int, text: str) -> CallText | None:
    """Read a call with so many more callers."""
    return under(frames - 1, text) if frames else HERMES.read_call(text)


@pytest.mark.parametrize("frames", [0, 400])
def test_the_depth_of_a_call_is_bounded_whoever_reads_it(frames: int):
    assert under(frames, nested(DEPTH_MAX)) is not None
    for depth in (DEPTH_MAX + 1, 300, 700, 900):
        assert under(frames, nested(depth)) is None


def test_brackets_in_strings_nest_nothing():
    arguments = json.dumps({"a": "[" * 1000 + '\\"{', "b": ["}"] * 100})
    text = f'{{"name": "f", "arguments": {arguments}}}'
    assert HERMES.read_call(text) == CallText("f", arguments)


@pytest.mark.parametrize(
    "number",
    ["7" * 5000, "-" + "7" * 5000, "1" * 5000 + ".5", "1e400"],
    ids=["long", "negative", "fraction", "exponent"],
)
def test_a_number_of_any_length_is_part_of_a_call(number: str):
    arguments = f'{{"a": {number}}}'
    assert HERMES.read_call(f'{{"name": "f", "arguments": {arguments}}}') == CallText(
        "f", arguments
    )
