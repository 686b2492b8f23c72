"""The vectors of calls in answers, run against the code; each character may be a token."""

from typing import Any

import pytest

from model_host.generation import CallingText, VisibleText
from model_host.rendering.tool_formats import FORMATS
from tests.model_host.generation.test_text import Bytes
from tests.vectors.plain import vectors_of

Vector = dict[str, Any]
FORMS = {known.name: known for known in FORMATS}


@pytest.mark.parametrize("vector", vectors_of("calls"))
def test_an_answer_has_the_parts_of_the_vector(vector: Vector) -> None:
    text = CallingText(VisibleText(Bytes(), ()), FORMS[vector["format"]], vector["before"])
    shown = b"".join(text.push(byte) for byte in vector["text"].encode())
    assert shown.decode() == vector["shown"]
    visible = shown + text.finish(can_continue=not vector["whole"])
    assert _parts(visible, text) == vector["parts"]


def _parts(visible: bytes, text: CallingText) -> list[Vector]:
    parts, at = list[Vector](), 0
    for call in text.calls:
        parts.append({"text": visible[at : call.offset].decode()})
        stated = {"name": call.name, "arguments_json": call.arguments_json}
        parts.append({"tool_call": stated})
        at = call.offset
    parts.append({"text": visible[at:].decode()})
    return [part for part in parts if part != {"text": ""}]
