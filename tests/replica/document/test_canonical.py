"""Canonical bytes of JSON: RFC 8785, with its own examples."""

import json
import math
import random
import struct
from collections.abc import Callable

import pytest

from replica.document.canonical import canonical_json, plain
from replica.document.lib0 import NestingTooDeep, ValueRefused


@pytest.mark.parametrize(
    ("bits", "written"),
    [  # RFC 8785, appendix B
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_ecmascript_does(bits: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(plain(number)).decode() == written


def test_every_number_reads_back_as_itself() -> None:
    rng = random.Random(1)
    for _ in range(5_000):
        (number,) = struct.unpack(">d", rng.randbytes(8))
        if math.isfinite(number):
            assert float(json.loads(canonical_json(plain(number)))) == number


def test_keys_are_ordered_by_utf_16_and_text_is_escaped_as_little_as_can_be() -> None:
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\x80": "Control",
        "\xf6": "Latin Small Letter O With Diaeresis",
    }
    order = [line.split(":")[0] for line in canonical_json(value).decode()[1:-1].split('","')]
    assert [json.loads(f'"{key.strip(chr(34))}"') for key in order] == [
        "\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33",
    ]  # fmt: skip
    assert canonical_json('\u20ac$\x0f\nA\'B"\\\\"/\x7f').decode() == (
        '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'
    )


def test_a_value_has_no_spaces_and_whole_numbers_are_ints() -> None:
    value = plain({"b": (1.0, 2.5, None, True), "a": {}})
    assert value == {"b": [1, 2.5, None, True], "a": {}}
    assert isinstance(value, dict)
    assert list(value) == ["a", "b"], "the value for people has one order too"
    assert canonical_json(value) == b'{"a":{},"b":[1,2.5,null,true]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53, b"", object(), {1: 2}, "\ud800"])
def test_a_value_that_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueRefused):
        plain(value)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}], ids=["lists", "maps"])
def test_64_containers_nest_and_no_more(wrap: Callable[[object], object]) -> None:
    value: object = 1
    for _ in range(64):
        value = wrap(value)
    assert plain(value) == value
    with pytest.raises(NestingTooDeep):
        plain(wrap(value))


def test_depth_counts_from_the_outermost_container() -> None:
    assert plain([], depth=63) == []
    assert plain(1, depth=64) == 1
    with pytest.raises(NestingTooDeep):
        plain([], depth=64)
