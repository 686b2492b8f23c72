"""Stop strings that end inside tokens, and characters that end inside tokens."""

import random

import pytest

from model_host.engine.tokenizer import Tokenizer
from model_host.generation.stop import PartialText, StopMatcher, unfinished
from model_host.refusals import StopInvalid


def naive(data: bytes, stops: list[str], early: int = 0) -> tuple[bytes, str | None]:
    """Search the whole output for the stop that ends first, of those the longest.

    None ends in the first `early` bytes.
    """
    for end in range(early + 1, len(data) + 1):
        ending = [stop for stop in stops if stop.encode() and data[:end].endswith(stop.encode())]
        if ending:
            stop = max(ending, key=lambda s: len(s.encode()))
            return data[: end - len(stop.encode())], stop
    return data[: len(data) - len(unfinished(data))], None


def run(pieces: list[bytes], stops: list[str], early: int = 0) -> tuple[bytes, str | None]:
    """Feed all pieces; no stop ends in the first `early` ones."""
    matcher, shown = StopMatcher(stops), b""
    for index, piece in enumerate(pieces):
        shown += matcher.feed(piece, may_stop=index >= early).text
        if matcher.stopped_by is not None:
            return shown, matcher.stopped_by
    return shown + matcher.finish(), None


def test_a_stop_string_over_the_border_of_tokens_is_found() -> None:
    assert run([b"one tw", b"o st", b"op thr", b"ee"], ["stop"]) == (b"one two ", "stop")


def test_a_stop_string_may_begin_early_and_end_later() -> None:
    assert run([b"##a", b"#", b"#b"], ["##"], 2) == (b"##a", "##")
    assert run([b"##", b"#"], ["##"], 1) == (b"#", "##")


def test_a_stop_string_inside_one_token_is_found() -> None:
    assert run([b"abSTOPcd"], ["STOP"]) == (b"ab", "STOP")


def test_only_bytes_that_may_begin_a_stop_string_are_held_back() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed(b"hello\n").text == b"hello"
    assert matcher.feed(b"\nUs").text == b""
    assert matcher.feed(b"ual").text == b"\n\nUsual"
    assert matcher.finish() == b""


def test_random_outputs_agree_with_the_naive_twin() -> None:
    rng = random.Random(3)
    alphabet = ["a", "b", "é", "🦊", "ab", "\n"]
    for _ in range(3000):
        stops = [
            "".join(rng.choices(alphabet, k=rng.randint(1, 4))) for _ in range(rng.randint(0, 3))
        ]
        data = "".join(rng.choices(alphabet, k=rng.randint(0, 12))).encode()
        if rng.random() < 0.3:
            data += rng.choice([b"\xf0\x9f", b"\xff", b"\xc3", b"\x80"])
        cuts = sorted(rng.choices(range(len(data) + 1), k=4))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert run(pieces, stops) == naive(data, stops)
        early = rng.randint(0, 3)
        assert run(pieces, stops, early) == naive(data, stops, sum(map(len, pieces[:early])))


def test_the_bytes_shown_never_end_inside_a_character() -> None:
    matcher = StopMatcher(["🦊!"])
    pieces = [matcher.feed(bytes([byte])).text for byte in "né🦊東".encode()]
    # The fox is held back while it may begin the stop string.
    assert [piece.decode() for piece in pieces] == [
        *("n", "", "é", "", "", "", ""),
        *("🦊", "", "東"),
    ]


def test_a_stop_string_over_real_tokens_is_found(tokenizer: Tokenizer) -> None:
    text = "The answer is forty-two. Observation: none"
    ids = tokenizer.encode(text)
    for stop in ["Observation:", "ty-t", ". O", "none"]:
        shown, found = run([tokenizer.token_bytes(token) for token in ids], [stop])
        assert found == stop
        assert shown.decode() == text.partition(stop)[0]


def test_partial_text_is_the_text_of_all_bytes() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        data = bytes(rng.choices([0x41, 0xC3, 0xA9, 0xE6, 0x9D, 0xB1, 0xF0, 0x9F, 0xFF], k=9))
        partial = PartialText()
        text = "".join(partial.feed(bytes([byte])) for byte in data)
        left = unfinished(data).decode("utf-8", "replace")
        assert text + left == data.decode("utf-8", "replace")


def test_unfinished_are_bytes_that_could_still_become_a_character() -> None:
    assert unfinished("a🦊".encode()[:-1]) == "🦊".encode()[:-1]
    assert unfinished(b"a\xe0\x80") == b""  # an overlong form is invalid already
    assert unfinished(b"a\xed\xa0") == b""  # so is a surrogate
    assert unfinished("a\ud7ff".encode()[:-1]) == "\ud7ff".encode()[:-1]
    assert unfinished(b"a\x80") == b""
    assert unfinished("é".encode()) == b""
    assert unfinished(b"") == b""


def test_stop_strings_out_of_range_are_refused() -> None:
    for stops in ([""], ["x" * 257], [str(n) for n in range(17)]):
        with pytest.raises(StopInvalid):
            StopMatcher(stops)
