"""Arguments of a wrong kind: each is refused with an error that names it."""

import enum
from pathlib import Path
from typing import Any, Dict, List, Literal  # noqa: UP035  # as programs still write them

import pytest

import antiphon
from replica.io import rpc
from replica.refusals import ArgumentInvalid
from tests.antiphon.library.conftest import Lab


class Size(enum.Enum):
    """Has no JSON."""

    LARGE = 1


def asking(hint: Any) -> Any:
    """Return a function whose parameter has an annotation."""

    def act(size):  # type: ignore[no-untyped-def]
        return size

    act.__annotations__ = {"size": hint}
    return act


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (dict[str, Dict[int, str]], "'size' has an annotation without a JSON type: typing.Dict"),  # noqa: UP006
        ([], r"'size' has an annotation without a JSON type: \[\]"),
        ({}, "'size' has an annotation without a JSON type: {}"),
        ("Nowhere", "name 'Nowhere' is not defined"),
        ("list[", "annotations can't be read"),
        (5, "'size' has an annotation without a JSON type: 5"),
        (Literal[Size.LARGE], "'size' has a Literal without JSON: <Size.LARGE: 1>"),
        (Literal["x", b"x"], "'size' has a Literal without JSON: b'x'"),
        (Literal["\ud800"], "'size' has a Literal without JSON: "),
        (tuple[int, str], "'size' has an annotation without a JSON type: tuple"),
    ],
)
def test_an_annotation_without_json_is_named(hint: Any, words: str):
    with pytest.raises(antiphon.ToolUnsuitable, match=words):
        antiphon.tool(asking(hint))


def test_a_bare_list_and_a_bare_dict_hold_anything():
    for hint, kind in ((List, "array"), (Dict, "object"), (list, "array")):  # noqa: UP006
        schema = antiphon.tool(asking(hint)).definition.parameters_json
        assert f'"size": {{"type": "{kind}"' in schema


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": 5}, "the name of a tool is 5, and no text"),
        ({"name": ""}, "the name of a tool is empty"),
        ({"name": "\ud800"}, "the name of a tool has an unpaired surrogate"),
        ({"name": "x" * 257}, "the name of a tool has 257 bytes, of at most 256"),
        ({"description": 5}, "the description of a tool is 5, and no text"),
        ({"resolve": "no"}, "resolve is 'no', and no function"),
    ],
)
def test_what_describes_a_tool_is_checked(given: dict[str, Any], words: str):
    with pytest.raises(ArgumentInvalid, match=words):
        antiphon.tool(**given)(asking(int))


def test_a_function_without_a_signature_is_no_tool():
    with pytest.raises(antiphon.ToolUnsuitable, match=r"max.* has no signature"):
        antiphon.tool(max)


@pytest.mark.parametrize(
    ("folder", "given", "words"),
    [
        (None, {}, "the folder is None, and no path"),
        (b"me", {}, "the folder is b'me', and no path"),
        ("a\0b", {}, "the folder is .*, and no path"),
        ("\ud800", {}, "the folder is .*, and no path"),
        ("", {"hub": 5}, "hub is 5, and no text"),
        ("", {"hub": "\ud800:1"}, "hub has an unpaired surrogate"),
        ("", {"hub": "127.0.0.1"}, "hub is '127.0.0.1', and not host:port"),
        ("", {"hub": "http://127.0.0.1:7411"}, "and not host:port"),
        ("", {"host": 5}, "host is 5, and no key of 32 bytes or its hex"),
        ("", {"host": b"abc"}, "host is b'abc', and no key"),
        ("", {"label": 5}, "label is 5, and no text"),
        ("", {"label": "\ud800"}, "label has an unpaired surrogate"),
    ],
)
def test_what_opens_a_replica_is_checked_first(
    tmp_path: Path, folder: Any, given: dict[str, Any], words: str
):
    at = str(tmp_path / "me") if folder == "" else folder
    with pytest.raises(ArgumentInvalid, match=words), antiphon.open(at, **given):
        pass
    with pytest.raises(ArgumentInvalid), antiphon.join(5, at):  # type: ignore[arg-type]
        pass
    assert not (tmp_path / "me").exists()


def test_what_a_conversation_is_asked_is_checked(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        trip: Any = me.conversation("trip")
        for role in (5, None, "boss"):
            with pytest.raises(ArgumentInvalid):
                trip.grant(bytes(32), role)
        with pytest.raises(ArgumentInvalid, match="address is 5, and no text"):
            trip.invite("bob", address=5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": "hot"}, "temperature is 'hot', not a number"),
        ({"seed": True}, "seed is True, not a whole number"),
        ({"logit_bias": None}, "logit_bias is None, and no list of LogitBias"),
        ({"logit_bias": (1,)}, "and no list of LogitBias"),
    ],
)
def test_sampling_of_a_conversation_is_checked(tmp_path: Path, changes: dict[str, Any], words: str):
    """Some of it ended in a TypeError."""
    with antiphon.open(tmp_path) as me:
        with pytest.raises(ArgumentInvalid, match=words):
            me.conversation("trip", sampling=antiphon.Sampling(**changes))
        assert me.conversations() == ()


def test_a_branch_can_be_named_as_an_argument(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        trip = me.conversation("trip")
        first = trip.say("First.")
        trip.say("Second.")
        trip.switch(branch=trip.at(first))
        assert trip._core._cursor.at == first


@pytest.mark.parametrize("result", [5, None, "\ud800"])
async def test_a_result_without_a_text_is_refused(lab: Lab, result: Any) -> None:
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(ArgumentInvalid, match="a result"):
            await trip.finish("1", result)
        with pytest.raises(ArgumentInvalid, match="the id of a call"):
            await trip.abandon(result)


async def test_what_is_neither_true_nor_false_marks_no_result(lab: Lab) -> None:
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(ArgumentInvalid, match="is_error is 'no', not True or False"):
            await trip.finish("1", "booked", is_error="no")


async def test_a_wait_for_the_hub_has_an_end(lab: Lab) -> None:
    async with lab.open() as me:
        for one in (me, await me.conversation("trip")):
            with pytest.raises(ArgumentInvalid, match="timeout_s is None, not a number"):
                await one.sync(None)


@pytest.mark.parametrize(
    "call",
    [antiphon.Call(5, "act"), antiphon.Call("", None), antiphon.Call("", "act", {})],  # type: ignore[arg-type]  # as programs write them
)
async def test_a_call_of_a_policy_has_texts(talking: Lab, call: antiphon.Call) -> None:
    async with talking.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(ArgumentInvalid, match="of a policy's call"):
            await trip.ask("Hello.", policy=lambda _answer: call, key="job-17")
        assert (await trip.ask("Hello.", key="job-17")).text


async def test_a_folder_has_a_name():
    with pytest.raises(ArgumentInvalid, match="the folder has no name"):
        async with antiphon.aio.open(""):
            pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": ""}, "model is '', which is empty"),
        ({"model": "\0"}, "model is .*, which is empty or has a NUL character"),
        ({"model": "\ud800"}, "model has an unpaired surrogate"),
        ({"host_module": None}, "host_module is None, and no text"),
    ],
)
def test_what_a_process_cannot_be_given_starts_none(
    given: dict[str, Any], words: str, tmp_path: Path
):
    opening = antiphon.local(tmp_path / "local", **given)
    with pytest.raises(ArgumentInvalid, match=words):
        opening.__enter__()
    assert not any(tmp_path.iterdir())


def test_a_clock_before_1970_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The clock of the machine that runs the tests stays as it is."""
    with antiphon.open(tmp_path, host="ab" * 32) as me:
        notes = me.conversation("notes")
        monkeypatch.setattr(rpc, "now_ms", lambda: -1)
        for call in (notes.say, notes.ask, me.conversation):
            with pytest.raises(antiphon.ClockInvalid, match="set before 1970"):
                call("Today.")
        monkeypatch.undo()
        assert notes.history() == ()
        notes.say("Today.")
        assert len(me.conversations()) == 1
