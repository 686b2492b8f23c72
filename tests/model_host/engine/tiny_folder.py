"""A tiny Hugging Face folder of each family, with the tensors of tests' tiny GGUF."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Regex, pre_tokenizers

from model_host.engine.hf_folder import _own_name
from model_host.model_config import ModelConfig
from tests.model_host.engine import tiny_model

SMOLLM = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
)


def split_by(pattern: str, behavior: str = "isolated") -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(pattern), behavior=behavior)
    return pre_tokenizers.Sequence([split, plain])


def tokenizer_json(pre: pre_tokenizers.PreTokenizer = SMOLLM, **model: object) -> dict[str, Any]:
    """Return the tiny GGUF's tokenizer; `model` changes fields of its model."""
    control = {text: index for index, text in enumerate(tiny_model.CONTROL)}
    rest = {text: i for i, text in enumerate(tiny_model.TOKENS) if text not in control}
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": text, "special": True, **flags}
            for text, index in control.items()
        ],
        "normalizer": None,
        "pre_tokenizer": json.loads(pre.__getstate__()),
        "model": {
            "type": "BPE",
            "unk_token": None,
            "vocab": rest,
            "merges": list(tiny_model.MERGES),
            **model,
        },
    }


def config_json(config: ModelConfig, family: str = "llama") -> dict[str, Any]:
    return {
        "model_type": family,
        "architectures": ["Any"],
        "hidden_act": "silu",
        "hidden_size": config.width,
        "intermediate_size": config.ffn_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.context_tokens,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.rms_eps,
        "tie_word_embeddings": config.tied,
    }


def write(
    folder: Path,
    config: ModelConfig = tiny_model.LLAMA,
    *,
    family: str = "llama",
    changed: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    shards: int = 1,
    left_out: str = "",
    extra: Mapping[str, torch.Tensor] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
) -> Path:
    """Write the model; `changed` replaces fields of config.json, `tokenizer` tokenizer.json."""
    folder.mkdir(exist_ok=True)
    fields = config_json(config, family) | dict(changed or {})
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or tokenizer_json()))
    settings = {"eos_token": "<|end|>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    made = {
        _own_name(name): torch.from_numpy(value).to(dtype)
        for name, value in tiny_model.tensors(config).items()
    }
    made = {k: v for k, v in (made | dict(extra or {})).items() if k != left_out}
    if shards == 1:
        save_file(made, folder / "model.safetensors")
        return folder
    names, placed = sorted(made), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        held = names[shard::shards]
        save_file({name: made[name] for name in held}, folder / file)
        placed |= dict.fromkeys(held, file)
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
