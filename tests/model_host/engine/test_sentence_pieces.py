"""SentencePiece: pieces merged by score, bytes for what has none, spaces where models want them."""

import random
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from model_host.engine.gguf_file import open_model_file
from model_host.engine.model_file import BYTE, CONTROL, NORMAL, USER_DEFINED, TokenizerData
from model_host.engine.sentence_pieces import (
    MODEL,
    PIECE_CHARACTERS_MAX,
    SPACE,
    SPACED,
    merges_by_score,
    splits_of,
    token_bytes,
)
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import ModelFileInvalid, TokenizerUnknown
from tests.model_host.engine import tiny_pieces

BYTES = [f"<0x{value:02X}>" for value in range(256)]


def build(scores: dict[str, float]) -> Tokenizer:
    tokens = ("<s>", *BYTES, *scores)
    types = (3, *(BYTE for _ in BYTES), *(NORMAL for _ in scores))
    by_id = [0.0] * (1 + len(BYTES)) + list(scores.values())
    merges = merges_by_score(tokens, types, by_id)
    return Tokenizer.build(TokenizerData(MODEL, SPACED, tokens, types, merges, 0, None))


def by_score(scores: dict[str, float], text: str) -> list[str]:
    """Merge as SentencePiece does: the pair with the greatest score, the leftmost of equal ones."""
    symbols = list(text.replace(" ", SPACE))
    while True:
        pairs = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(symbols))
                 if a + b in scores]  # fmt: skip
        if not pairs:
            return symbols
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@pytest.mark.parametrize("seed", range(20))
def test_random_pieces_are_merged_as_sentence_piece_merges_them(seed: int) -> None:
    rng = random.Random(seed)
    scores, letters = dict.fromkeys("abc" + SPACE, 0.0), "abc" + SPACE
    while len(scores) < 40:  # of pieces that are there already, as training makes them
        scores.setdefault(rng.choice(list(scores)) + rng.choice(list(scores)), -len(scores))
    scores |= {SPACE * n: -1e9 for n in range(2, 9)}
    tokenizer = build(scores)
    for _ in range(100):
        text = "".join(rng.choices(letters.replace(SPACE, " "), k=25))
        found = [tokenizer.data.tokens[i] for i in tokenizer.encode(text)]
        assert found == by_score(scores, text)
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


def test_any_text_decodes_to_exactly_its_bytes() -> None:
    tokenizer, rng = build({SPACE: 0.0, "é": 0.0}), random.Random(3)
    for _ in range(200):
        points = [rng.choice([rng.randrange(1, 0x3000), 0x2581, 0x20, 0x1F98A]) for _ in range(20)]
        text = "".join(map(chr, points))
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()
        assert not any(map(tokenizer.is_control, tokenizer.encode(text)))
    assert not tokenizer.bytes_missing
    assert not tokenizer.is_control(1)


def test_a_gguf_states_scores_and_whether_spaces_are_added(tmp_path: Path) -> None:
    spaced = open_model_file(tiny_pieces.write_gguf(tmp_path / "spaced.gguf")).tokenizer
    assert list(spaced.merges) == tiny_pieces.RAW["merges"]
    path = tiny_pieces.write_gguf(tmp_path / "plain.gguf", add_space_prefix=False)
    plain = open_model_file(path).tokenizer
    assert plain == replace(spaced, pre="plain")
    literal = "<s>the"
    assert Tokenizer.build(spaced).encode_template(literal)[1:] == Tokenizer.build(spaced).encode(
        " the"
    )
    assert Tokenizer.build(plain).encode_template(literal)[1:] == Tokenizer.build(plain).encode(
        "the"
    )


def test_a_text_behind_a_control_token_has_a_space(tmp_path: Path) -> None:
    data = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    spaced, plain = Tokenizer.build(data), Tokenizer.build(replace(data, pre="plain"))
    assert spaced.adds_space("the</s>")
    assert not spaced.adds_space("</s>\n")
    assert not plain.adds_space("the</s>")
    assert spaced.encode_template("</s></s>") == plain.encode_template("</s></s>")
    assert spaced.adds_space("", begins=True)
    assert not spaced.adds_space("")
    assert not plain.adds_space("", begins=True)


def test_a_control_token_without_a_text_is_never_found(tmp_path: Path) -> None:
    data = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    more = replace(data, tokens=(*data.tokens, ""), types=(*data.types, CONTROL))
    known, tokenizer = Tokenizer.build(data), Tokenizer.build(more)
    assert tokenizer.encode_template("the<s>the") == known.encode_template("the<s>the")
    assert not tokenizer.adds_space("the")


def test_a_control_token_that_holds_the_character_for_a_space_is_found(tmp_path: Path) -> None:
    data = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    text = f"<begin{SPACE}of>"
    more = replace(data, tokens=(*data.tokens, text), types=(*data.types, CONTROL))
    tokenizer = Tokenizer.build(more)
    expected = [len(data.tokens), *tokenizer.encode(" the")]
    assert tokenizer.encode_template(f"{text}the") == expected


def test_control_tokens_are_found_in_a_time_that_does_not_grow_with_them() -> None:
    controls = [f"<|{number}|>" for number in range(50_000)]
    tokens = (SPACE, "a", *BYTES, *controls)
    types = (NORMAL, NORMAL, *(BYTE for _ in BYTES), *(CONTROL for _ in controls))
    tokenizer = Tokenizer.build(TokenizerData(MODEL, SPACED, tokens, types, (), None, None))
    begun = time.process_time()
    assert tokenizer.encode_template("<|7|>a<|49999|>") == [265, 0, 1, len(tokens) - 1]
    assert time.process_time() - begun < 1  # a pattern of them takes 3 s and more


def test_a_vocabulary_without_control_tokens_has_the_first_space() -> None:
    tokens, types = (SPACE, "a", *BYTES), (NORMAL, NORMAL, *(BYTE for _ in BYTES))
    tokenizer = Tokenizer.build(TokenizerData(MODEL, SPACED, tokens, types, (), None, None))
    assert tokenizer.encode_template("aa", begins=True) == [0, 1, 1]
    assert tokenizer.encode_template("aa") == [1, 1]


def test_a_flag_that_is_no_truth_value_is_refused(tmp_path: Path) -> None:
    path = tiny_pieces.write_gguf(tmp_path / "model.gguf", add_space_prefix="no")
    with pytest.raises(ModelFileInvalid, match="add_space_prefix"):
        open_model_file(path)


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    for scores in ([0.0], [float("nan")] * len(tiny_pieces.TOKENS), [1] * len(tiny_pieces.TOKENS)):
        path = tiny_pieces.write_gguf(tmp_path / "model.gguf", scores)
        with pytest.raises(ModelFileInvalid, match=r"tokenizer\.ggml\.scores"):
            open_model_file(path)


def test_a_tokenizer_without_a_token_for_each_byte_is_refused(tmp_path: Path) -> None:
    data = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    tokens = tuple("other" if text == "<0x0A>" else text for text in data.tokens)
    types = tuple(1 if t == "other" else kind for t, kind in zip(tokens, data.types, strict=True))
    with pytest.raises(TokenizerUnknown, match="<0x0A>"):
        Tokenizer.build(replace(data, tokens=tokens, types=types))
    with pytest.raises(TokenizerUnknown, match="qwen2"):
        Tokenizer.build(replace(data, pre="qwen2"))


def test_tokens_that_change_the_bytes_of_a_text_are_refused(tmp_path: Path) -> None:
    data = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    for kind in (NORMAL, BYTE, CONTROL):
        twice = replace(data, tokens=(*data.tokens, "<0xE2>"), types=(*data.types, kind))
        with pytest.raises(TokenizerUnknown, match="Two tokens"):
            Tokenizer.build(twice)
    merges = tuple(one for one in data.merges if SPACE not in one.split(" "))
    for text, kind in (("other", NORMAL), (SPACE, CONTROL), (SPACE, USER_DEFINED)):
        at, tokens, types = data.tokens.index(SPACE), list(data.tokens), list(data.types)
        tokens[at], types[at] = text, kind
        with pytest.raises(TokenizerUnknown, match="stands for a space"):
            Tokenizer.build(replace(data, tokens=tuple(tokens), types=tuple(types), merges=merges))


def test_pieces_of_any_length_and_number_are_refused() -> None:
    with pytest.raises(TokenizerUnknown, match="characters"):
        merges_by_score(["a" * (PIECE_CHARACTERS_MAX + 1)], [NORMAL], [0.0])
    with pytest.raises(TokenizerUnknown, match=f"{5 * 255 * 16_384} characters together"):
        list(splits_of({f"{n:0255}": n for n in range(5 * 16_384)}))
    with pytest.raises(TokenizerUnknown, match="merges have more than"):
        # Each piece is made of two pieces wherever it is split.
        runs = [chr(0x4E00 + n) * length for n in range(10) for length in range(1, 251)]
        list(splits_of({run: n for n, run in enumerate(runs)}))
    with pytest.raises(TokenizerUnknown, match="isn't one of a byte"):
        token_bytes("<0xZZ>", BYTE)
