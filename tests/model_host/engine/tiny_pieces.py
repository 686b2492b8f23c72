"""The SentencePiece tokenizer of the vectors, in a GGUF and in a Hugging Face folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf

from tests.model_host.engine import tiny_model
from tests.vectors.plain import file_of

RAW = file_of("pieces")["pieces"]
TOKENS, TYPES, SCORES = (tuple(RAW[name]) for name in ("tokens", "types", "scores"))
CONFIG = replace(tiny_model.LLAMA, vocab=len(TOKENS))
SPACE = "\u2581"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
LEGACY = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, REPLACE]}


def write_gguf(
    path: Path, scores: list[Any] | None = None, chat: str = "{{ messages }}", **options: Any
) -> Path:
    """Write a tiny model with this tokenizer; `options` are further fields of the tokenizer."""

    def add_text(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(list(TOKENS))
        writer.add_token_types(list(TYPES))
        writer.add_token_scores(list(SCORES) if scores is None else scores)
        writer.add_bos_token_id(TOKENS.index("<s>"))
        writer.add_eos_token_id(TOKENS.index("</s>"))
        for key, value in options.items():
            add = writer.add_bool if isinstance(value, bool) else writer.add_string
            add(f"tokenizer.ggml.{key}", value)
        writer.add_chat_template(chat)

    return tiny_model.write(path, CONFIG, add_text=add_text)


def tokenizer_json(**changed: object) -> dict[str, Any]:
    """Return the same tokenizer as transformers write it; `changed` are fields of its model."""
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    added = [
        {"id": index, "content": TOKENS[index], "special": TYPES[index] != 4, **flags}
        for index in range(len(TOKENS))
        if TYPES[index] in (2, 3, 4)
    ]
    return {
        "added_tokens": added,
        "normalizer": LEGACY,
        "pre_tokenizer": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {text: i for i, text in enumerate(TOKENS) if TYPES[i] in (1, 2, 3, 6)},
            "merges": list(RAW["merges"]),
            **changed,
        },
    }


def write_json(folder: Path, whole: dict[str, Any]) -> Path:
    """Write tokenizer.json into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return folder
