"""The pre-tokenizers that a GGUF names."""

import pytest

from model_host.engine.pre_tokenizer import build_pre_tokenizer, ignores_merges

TEXT = "It's 2026, and WE'LL see: 12345 ümlauts\n\n  中文 x-y fooBar"


def split(pre: str) -> list[str]:
    return [piece for piece, _ in build_pre_tokenizer(pre).pre_tokenize_str(TEXT)]


@pytest.mark.parametrize(
    ("other", "known", "is_whole"),
    [
        ("gpt2", "gpt-2", False),
        ("llama3", "llama-bpe", True),
        ("llama-v3", "llama-bpe", True),
        ("falcon3", "llama-bpe", True),
        ("smaug-bpe", "llama-bpe", False),
        ("deepseek-r1-qwen", "qwen2", False),
        ("megrez", "qwen2", False),
    ],
)
def test_names_of_llama_cpp_that_divide_a_text_alike(other: str, known: str, is_whole: bool):
    """llama.cpp treats smaug-bpe as llama-bpe, but for whole words of the vocabulary."""
    assert split(other) == split(known)
    assert ignores_merges(other) is is_whole


def test_the_names_known_divide_a_text_differently():
    names = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken")
    assert len({tuple(split(name)) for name in names}) == len(names)
