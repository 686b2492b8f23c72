"""Options for the form of an answer, and for tools."""

import json
from pathlib import Path

import pytest

from replica.log.body import ToolCall
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.scripted_host import echo, words

SUM = {"name": "sum", "description": "Adds.", "parameters": {"type": "object"}}


def request_of(me: Terminal) -> dict[str, object]:
    """Return the record of the last request."""
    return [record for record in me.records("log") if record["kind"] == "request"][-1]


def test_each_form_is_in_the_request_as_it_was_given(me: Terminal, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "answer.lark"
    schema.write_text('{"type":  "object"}\n')
    grammar.write_text('start: "a"')
    me.ok("new")
    for option, value, field, text in (
        ("--json-schema", str(schema), "json_schema", '{"type":  "object"}\n'),
        ("--regex", "[0-9]+", "regex", "[0-9]+"),
        ("--lark", str(grammar), "lark", 'start: "a"'),
    ):
        me.ok("send", "hello", option, value)
        assert request_of(me)[field] == text
    me.ok("send", "hello")
    assert not {"json_schema", "regex", "lark"} & request_of(me).keys()


def test_more_tools_than_an_entry_holds_are_refused_by_their_file(
    me: Terminal, tmp_path: Path
) -> None:
    (file := tmp_path / "tools.json").write_text(
        json.dumps([{"name": f"t{n}"} for n in range(5000)])
    )
    me.ok("new")
    refused = me.run("send", "hello", "--tools", str(file))
    assert f"{file}: 5,000 tools: more than" in refused.stderr.replace("\n", " ")
    assert "ARGUMENT_INVALID" in refused.stderr


ON = {"send": ("send", "--continue"), "chat": ("chat",)}


@pytest.mark.parametrize("way", ON)
def test_an_answer_that_goes_on_keeps_its_form_and_choice(me: Terminal, way: str) -> None:
    me.ok("new")
    me.ok("send", "hello, all of you", "--regex", ".*", "--max-tokens", "1")
    for _ in range(2):  # also behind a continuation that was cut off
        me.ok(*ON[way], "--max-tokens", "1", typed="/continue\n")
        assert request_of(me)["regex"] == ".*"
    me.ok("send", "hello, all of you", "--tool-choice", "sum", "--max-tokens", "1")
    me.ok(*ON[way], "--max-tokens", "1", typed="/continue\n")
    assert request_of(me)["tool_choice"] == "sum"
    assert "regex" not in request_of(me)
    me.ok("send", "--continue", "--regex", "a", "--max-tokens", "1")
    assert request_of(me)["regex"] == "a"
    assert "tool_choice" not in request_of(me)


def test_tools_are_offered_before_the_message(me: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([SUM, {"type": "function", "function": {"name": "now"}}]))
    me.ok("new")
    me.ok("send", "How much is 3 + 4?", "--tools", str(path), "--tool-choice", "sum")
    kinds = [record["kind"] for record in me.records("log")]
    assert kinds.index("tools") < kinds.index("message") < kinds.index("request")
    (offered,) = [r["tools"] for r in me.records("log") if r["kind"] == "tools"]
    assert offered == [
        {"name": "sum", "description": "Adds.", "parameters_json": '{"type": "object"}'},
        {"name": "now", "description": "", "parameters_json": "{}"},
    ]
    assert request_of(me)["tool_choice"] == "sum"
    me.ok("send", "again", "--tool-choice", "required")
    assert request_of(me)["tool_choice"] == "required"


def test_a_result_answers_a_call_that_is_open(world: World, me: Terminal, tmp_path: Path) -> None:
    world.stop_host()
    world.start_host(
        lambda asked: [ToolCall("abc-0", "sum", "{}")] if asked.said == "Add." else echo(asked)
    )
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([SUM]))
    me.ok("new")
    assert me.refused("send", "42", "--result", "abc-0") == "ARGUMENT_INVALID"
    called = me.run("send", "Add.", "--tools", str(tools)).stderr
    assert "tool_calls · antiphon send TEXT --result abc-0 gives its result" in called
    first = next(record["id"] for record in me.records("log"))
    for call, *more in (("nope",), ("abc-0", "--at", first)):
        assert me.refused("send", "42", "--result", call, *more) == "ARGUMENT_INVALID"
    assert me.ok("send", "42", "--result", "abc-0").strip() == "You said: 42"
    assert me.refused("send", "43", "--result", "abc-0") == "ARGUMENT_INVALID"
    *_, said = [record for record in me.records("log") if record["kind"] == "message"]
    assert said["role"] == "tool"
    assert said["parts"] == [
        {"tool_result": {"call_id": "abc-0", "parts": [{"text": "42"}], "is_error": False}}
    ]


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"name": "f"}', "[1]", '[{"name": ""}]', '[{"name": "f", "parameters": 1}]'],
)
def test_a_file_that_defines_no_tools_is_refused(
    me: Terminal, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "tools.json"
    path.write_text(content)
    me.ok("new")
    assert me.refused("send", "hi", "--tools", str(path)) == "ARGUMENT_INVALID"
    assert not [record for record in me.records("log") if record["kind"] == "message"]


def test_forms_that_make_no_sense_are_refused_before_anything_is_written(
    me: Terminal, tmp_path: Path
) -> None:
    large, binary = tmp_path / "large.json", tmp_path / "binary"
    large.write_text(json.dumps("x" * 65_536))
    binary.write_bytes(b"\xff")
    me.ok("new")
    for options in (
        ("--json-schema", str(tmp_path / "missing")),
        ("--json-schema", str(large)),
        ("--lark", str(binary)),
        ("--regex", ""),
        ("--regex", "a", "--lark", str(binary)),
        ("--no-request", "--result", "abc-0"),
    ):
        assert me.refused("send", "hi", *options) == "ARGUMENT_INVALID"
    assert me.refused("send", "--result", "abc-0") == "ARGUMENT_INVALID"
    assert not [record for record in me.records("log") if record["kind"] == "message"]


def test_a_message_behind_a_call_says_that_it_waits_for_its_result(
    world: World, me: Terminal
) -> None:
    world.stop_host()
    world.start_host(
        lambda asked: [ToolCall("abc-0", "book", "{}")] if asked.said == "Book." else words("Done.")
    )
    me.ok("new")
    me.ok("send", "Book.")
    noted = me.run("send", "And then?", "--no-wait").stderr
    assert "the tool call abc-0 (book) of your key has no result; this waits for it" in noted
    assert "no program works on it" in noted
    assert "you wait for your tool book" in me.run("status").stderr
    assert "note" not in me.run("send", "booked", "--result", "abc-0", "--no-wait").stderr
