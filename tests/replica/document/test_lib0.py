"""lib0: minimal integers, texts, JSON values; each read stays inside its input."""

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.document.lib0 import (
    NESTING_MAX,
    SAFE_INTEGER_MAX,
    NestingTooDeep,
    Reader,
    UpdateMalformed,
    ValueRefused,
    pass_value,
    text,
    varuint,
)

integers = st.integers(0, SAFE_INTEGER_MAX)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-SAFE_INTEGER_MAX, SAFE_INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
)


def signed(value: int) -> bytes:
    """Encode an integer as lib0 does: sign in bit 6 of the first byte, 6 bits there, 7 after."""
    size = abs(value)
    out = [size & 0x3F | (0x40 if value < 0 else 0)]
    size >>= 6
    while size:
        out[-1] |= 0x80
        out.append(size & 0x7F)
        size >>= 7
    return bytes(out)


def encoded(value: object) -> bytes:
    """Encode one `any` value, by recursion."""
    match value:
        case None:
            return b"\x7e"
        case True:
            return b"\x78"
        case False:
            return b"\x79"
        case int():
            return b"\x7d" + signed(value)
        case float():
            return b"\x7b" + struct.pack(">d", value)
        case str():
            return b"\x77" + text(value)
        case list():
            return b"\x75" + varuint(len(value)) + b"".join(map(encoded, value))
        case dict():
            pairs = (text(key) + encoded(item) for key, item in value.items())
            return b"\x76" + varuint(len(value)) + b"".join(pairs)
        case _:
            raise AssertionError(value)


@given(integers)
def test_an_integer_comes_back_and_is_minimal(value: int) -> None:
    data = varuint(value)
    reader = Reader(data + b"rest")
    assert (reader.varuint(), reader.at) == (value, len(data))
    assert len(data) == max(1, math.ceil(value.bit_length() / 7))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\x81\x80\x00",
        varuint(SAFE_INTEGER_MAX + 1),
        b"\x80" * 9 + b"\x01",
    ],
    ids=["empty", "cut off", "zero in two bytes", "padded", "beyond 2**53", "too long"],
)
def test_no_other_integer_is_read(data: bytes) -> None:
    with pytest.raises(UpdateMalformed):
        Reader(data).varuint()


@given(st.text(max_size=300))
def test_a_text_comes_back(value: str) -> None:
    reader = Reader(text(value))
    assert reader.text() == value
    assert reader.at == len(reader.data)


@pytest.mark.parametrize(
    "data", [b"\x01\xff", b"\x02a", b"\x05"], ids=["not UTF-8", "short", "bare"]
)
def test_no_other_text_is_read(data: bytes) -> None:
    with pytest.raises(UpdateMalformed):
        Reader(data).text()


def test_a_count_is_not_zero() -> None:
    assert Reader(b"\x01").length() == 1
    with pytest.raises(UpdateMalformed, match="is 0"):
        Reader(b"\x00").length()


@given(json_values)
def test_a_json_value_is_passed_to_its_end(value: object) -> None:
    data = encoded(value)
    reader = Reader(data + b"rest")
    pass_value(reader)
    assert reader.at == len(data)


@pytest.mark.parametrize("value", [0, 1, -1, 63, 64, -64, 2**53 - 1, 1 - 2**53])
def test_an_integer_value_is_passed_in_its_minimal_form(value: int) -> None:
    data = encoded(value)
    reader = Reader(data)
    pass_value(reader)
    assert reader.at == len(data)


@given(json_values)
def test_a_value_that_is_cut_off_is_malformed(value: object) -> None:
    data = encoded(value)
    for end in range(len(data)):
        with pytest.raises((UpdateMalformed, ValueRefused)):
            pass_value(Reader(data[:end]))


@given(st.binary(max_size=40))
def test_random_bytes_raise_nothing_but_typed_errors(data: bytes) -> None:
    reader = Reader(data)
    try:
        pass_value(reader)
    except (UpdateMalformed, ValueRefused, NestingTooDeep):
        return
    assert reader.at <= len(data)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}], ids=["lists", "maps"])
def test_containers_nest_to_a_bound(wrap: Callable[[object], object]) -> None:
    value: object = 1
    for _ in range(NESTING_MAX):
        value = wrap(value)
    pass_value(Reader(encoded(value)))
    with pytest.raises(NestingTooDeep):
        pass_value(Reader(encoded(wrap(value))))


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f",
        b"\x7a" + bytes(8),
        b"\x74\x01a",
        b"\x7b" + struct.pack(">d", math.inf),
        b"\x7c" + struct.pack(">f", math.nan),
    ],
    ids=["undefined", "bigint", "bytes", "infinity", "nan"],
)
def test_a_value_that_json_cannot_hold_is_refused(data: bytes) -> None:
    with pytest.raises(ValueRefused):
        pass_value(Reader(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\x73",
        b"\x00",
        b"\x7d\x40",
        b"\x7d\x80\x00",
        b"\x7d" + signed(SAFE_INTEGER_MAX + 1),
        b"\x7d" + signed(2**55),
        b"\x76\x02" + (text("k") + b"\x7e") * 2,
    ],
    ids=["unknown tag", "small tag", "minus zero", "padded", "2**53", "2**55", "one key twice"],
)
def test_bytes_outside_the_strict_form_are_malformed(data: bytes) -> None:
    with pytest.raises(UpdateMalformed):
        pass_value(Reader(data))
