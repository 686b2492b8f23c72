"""Text to ids and back: exact bytes, control tokens only where a template writes them."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import models

from model_host.engine.gguf_file import open_model_file
from model_host.engine.model_file import USER_DEFINED
from model_host.engine.pre_tokenizer import library_errors
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import TokenizerUnknown
from model_host.generation.stop import PartialText
from model_host.refusals import TokenizerBytesMissing
from tests.model_host.engine import tiny_model

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>"]
TEXTS = [
    "",
    " ",
    "Hello world",
    "it's 1,234,567.89 — naïve",
    "\tdef f(x):\r\n        return x\n\n\n",
    "東京🦊👩‍👩‍👧 한국어 עברית",
    "a" * 500,
    " \u00a0\u2003\ufeff ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_decode_to_exactly_the_bytes_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


def test_random_texts_survive_the_round_trip(tokenizer: Tokenizer) -> None:
    rng = random.Random(5)
    for _ in range(300):
        points = [
            rng.choice([rng.randrange(0x20, 0x7F), rng.randrange(0xA0, 0x3000)]) for _ in range(30)
        ]
        text = "".join(map(chr, points))
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


@pytest.mark.parametrize("control", CONTROL)
def test_a_control_token_typed_by_a_user_is_plain_text(tokenizer: Tokenizer, control: str) -> None:
    text = f"before {control}\n{control}after"
    ids = tokenizer.encode(text)
    assert not any(tokenizer.is_control(token) for token in ids)
    assert tokenizer.decode_bytes(ids) == text.encode()


@pytest.mark.parametrize("control", CONTROL)
def test_a_control_token_of_a_template_is_one_token(tokenizer: Tokenizer, control: str) -> None:
    (token,) = tokenizer.encode_template(control)
    assert token == tokenizer.data.tokens.index(control)
    assert tokenizer.is_control(token)
    assert tokenizer.token_bytes(token) == b""


def test_no_text_yields_a_control_token(tokenizer: Tokenizer) -> None:
    rng = random.Random(9)
    pieces = [*CONTROL, "<|", "|>", "im_end", "im", "_", "<", "|", ">", " ", "\n", "x"]
    for _ in range(500):
        text = "".join(rng.choices(pieces, k=8))
        assert not any(map(tokenizer.is_control, tokenizer.encode(text)))


def test_bytes_the_vocabulary_lacks_are_refused_and_named(tokenizer: Tokenizer) -> None:
    missing = bytes([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D])
    assert bytes(b for b in sorted(tokenizer.bytes_missing) if b < 0x80) == missing
    for byte in missing:
        for encode in (tokenizer.encode, tokenizer.encode_template):
            with pytest.raises(TokenizerBytesMissing) as caught:
                encode(f"a{chr(byte)}b\x04")
            assert caught.value.bytes_missing == bytes(sorted({byte, 0x04}))
    assert tokenizer.missing_bytes("\x1d x \x06\x06") == b"\x06\x1d"
    assert tokenizer.missing_bytes("all fine\n") == b""


def test_every_other_ascii_byte_has_a_token(tokenizer: Tokenizer) -> None:
    for byte in sorted(set(range(128)) - tokenizer.bytes_missing):
        assert tokenizer.decode_bytes(tokenizer.encode(chr(byte))) == bytes([byte])


def test_text_comes_out_in_whole_characters(tokenizer: Tokenizer) -> None:
    text = "né 🦊🦊 東京👩‍👩‍👧!"
    ids, partial = tokenizer.encode(text), PartialText()
    assert any(
        b"\xef\xbf\xbd" in tokenizer.token_bytes(t).decode(errors="replace").encode() for t in ids
    )
    shown = [partial.feed(tokenizer.token_bytes(token)) for token in ids]
    assert "".join(shown) == text
    assert "\ufffd" not in "".join(shown)


def test_a_tokenizer_has_one_digest(tokenizer: Tokenizer, tmp_path: str) -> None:
    assert tokenizer.digest == Tokenizer.build(tokenizer.data).digest
    assert len(tokenizer.digest) == 32


def test_equal_data_share_a_tokenizer_and_others_do_not(tmp_path: Path) -> None:
    data = open_model_file(tiny_model.write(tmp_path / "model.gguf")).tokenizer
    again = open_model_file(tmp_path / "model.gguf").tokenizer
    assert Tokenizer.shared(data) is Tokenizer.shared(again)
    other = Tokenizer.shared(replace(data, pre="gpt-2"))
    assert other.digest == Tokenizer.build(replace(data, pre="gpt-2")).digest
    assert other.digest != Tokenizer.shared(data).digest


def test_another_pre_tokenizer_is_another_digest(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tokenizers")
    built = {}
    for pre in ("smollm", "gpt-2", "llama-bpe"):
        path = tiny_model.write(folder / f"{pre}.gguf", pre=pre)
        built[pre] = Tokenizer.build(open_model_file(path).tokenizer)
    assert len({tokenizer.digest for tokenizer in built.values()}) == 3
    for tokenizer in built.values():
        text = "hello world <|end|> 123\x04"  # the tiny vocabulary has every byte
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()
        assert tokenizer.encode_template("<|end|>hello") == [0, tiny_model.TOKENS.index("hello")]


def test_a_token_the_models_maker_defined_is_shown_and_never_typed(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", user_defined=("<|start|>",))
    tokenizer = Tokenizer.build(open_model_file(path).tokenizer)
    token = tiny_model.TOKENS.index("<|start|>")
    assert tokenizer.encode_template("<|start|>") == [token]
    assert tokenizer.token_bytes(token) == b"<|start|>"
    assert token not in tokenizer.encode("<|start|>")
    assert tokenizer.is_control(token)


def test_a_whole_word_of_llama_3_needs_no_merges(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", pre="llama-bpe")
    data = open_model_file(path).tokenizer
    tokenizer = Tokenizer.build(replace(data, merges=()))
    assert tokenizer.encode("hello") == [data.tokens.index("hello")]
    # A control token's text may be one word as well; typed, it stays text.
    tokens = ("hell", *data.tokens[1:])
    tokens = tuple("other" if n and t == "hell" else t for n, t in enumerate(tokens))
    tokenizer = Tokenizer.build(replace(data, tokens=tokens, merges=()))
    assert 0 not in tokenizer.encode("hell")
    assert tokenizer.encode_template("hell") == [0]


@pytest.mark.parametrize(
    ("merges", "named"),
    [(("h q",), "'hq'"), (("h e", "h e h e"), "two tokens"), (("h missing",), "'missing'")],
)
def test_a_merge_of_unknown_tokens_is_refused_by_name(
    tmp_path: Path, merges: tuple[str, ...], named: str
) -> None:
    data = open_model_file(tiny_model.write(tmp_path / "tiny.gguf")).tokenizer
    with pytest.raises(TokenizerUnknown, match=named):
        Tokenizer.build(replace(data, merges=merges))


def test_a_merge_into_a_token_that_is_no_normal_one_is_refused(tmp_path: Path) -> None:
    """The library panics where a merge gives a longer text than any of the vocabulary."""
    data = open_model_file(tiny_model.write(tmp_path / "tiny.gguf")).tokenizer
    for index, text in enumerate(data.tokens):
        if text in {merge.replace(" ", "") for merge in data.merges}:
            types = (*data.types[:index], USER_DEFINED, *data.types[index + 1 :])
            with pytest.raises(TokenizerUnknown, match=re.escape(repr(text))):
                Tokenizer.build(replace(data, types=types))


def test_errors_and_panics_of_the_library_have_a_type() -> None:
    for merges in ([("a", "b")], [("b", "c")]):
        with pytest.raises(TokenizerUnknown, match="vocabulary"), library_errors("vocabulary"):
            models.BPE(vocab={"a": 0, "b": 1}, merges=merges)
    with pytest.raises(KeyboardInterrupt), library_errors("vocabulary"):
        raise KeyboardInterrupt
