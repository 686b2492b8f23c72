"""A tiny GGUF of each family, and a naive forward pass over its tensors."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind

from model_host.engine.byte_level import CHARACTER_OF
from model_host.engine.model_file import ModelFile, TokenizerData, layer_shapes
from model_host.model_config import ModelConfig

CONTEXT = 1024
CONTROL = ("<|end|>", "<|start|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w")
TOKENS = (*CONTROL, *CHARACTER_OF, *(merge.replace(" ", "") for merge in MERGES))
LLAMA = ModelConfig(
    layers=2,
    width=64,
    ffn_width=96,
    heads=4,
    kv_heads=2,
    head_width=16,
    vocab=len(TOKENS),
    context_tokens=CONTEXT,
    rope_base=10_000.0,
    rms_eps=2**-17,  # exact in the file's float32
    tied=False,
)

Floats = npt.NDArray[np.float64]
Tensors = dict[str, npt.NDArray[np.float32]]


def tensors(config: ModelConfig = LLAMA, seed: int = 1) -> Tensors:
    """Make every tensor of a model, under its GGUF name."""
    rng = np.random.default_rng(seed)
    shapes = {"token_embd.weight": (config.vocab, config.width)}
    if not config.tied:
        shapes["output.weight"] = (config.vocab, config.width)
    shapes["output_norm.weight"] = (config.width,)
    for layer in range(config.layers):
        block = layer_shapes(config)
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return {
        name: (
            rng.uniform(0.5, 1.5, shape)
            if "norm" in name
            else rng.normal(0, 1.6 / shape[-1] ** 0.5, shape)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def _unquantised(name: str) -> Kind | None:
    return None


def write(
    path: Path,
    config: ModelConfig = LLAMA,
    *,
    architecture: str = "llama",
    name: str = "Tiny",
    left_out: str = "",
    extra: Tensors | None = None,
    kind_of: Callable[[str], Kind | None] = _unquantised,
    options: dict[str, int | float | str] | None = None,
    pre: str = "smollm",
    user_defined: tuple[str, ...] = (),
    eos_id: int | None = None,
    like: ModelFile | None = None,
    add_text: Callable[[gguf.GGUFWriter], None] | None = None,
) -> Path:
    """Write the model, with one defect if asked for; `kind_of` names tensors' types.

    `options` are added to the metadata of the architecture. Tokenizer and chat template are
    those of the model `like`, if one is given, or what `add_text` adds.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context_tokens)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.ffn_width)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    if config.head_width * config.heads != config.width:
        writer.add_key_length(config.head_width)
        writer.add_value_length(config.head_width)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    for key, value in (options or {}).items():
        kinds = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        kinds[type(value)](f"{architecture}.{key}", value)
    types = [3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL))
    for text in user_defined:
        types[TOKENS.index(text)] = 4
    own = TokenizerData("gpt2", pre, TOKENS, tuple(types), MERGES, None, eos_id)
    if add_text is not None:
        add_text(writer)
    else:
        template = like.template if like else "{{ messages }}"
        _add_text(writer, like.tokenizer if like else own, template)
    for key, tensor in (tensors(config) | (extra or {})).items():
        if key == left_out:
            continue
        kind = kind_of(key)
        if kind is None:
            writer.add_tensor(key, tensor)
        else:
            writer.add_tensor(key, blocks(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_text(writer: gguf.GGUFWriter, tokenizer: TokenizerData, template: str) -> None:
    writer.add_tokenizer_model(tokenizer.model)
    writer.add_tokenizer_pre(tokenizer.pre)
    writer.add_token_list(list(tokenizer.tokens))
    writer.add_token_types(list(tokenizer.types))
    if tokenizer.bos_id is not None:
        writer.add_bos_token_id(tokenizer.bos_id)
    if tokenizer.eos_id is not None:
        writer.add_eos_token_id(tokenizer.eos_id)
    writer.add_token_merges(list(tokenizer.merges))
    writer.add_chat_template(template)


def blocks(value: npt.NDArray[np.float32], kind: Kind) -> npt.NDArray[np.uint8]:
    """Quantise a matrix; the gguf package can't make K-quants, which get random numbers."""
    if kind not in SCALES_OF:
        return np.asarray(gguf.quants.quantize(value, kind))
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = value.size // block
    rng = np.random.default_rng(value.size)
    made = rng.integers(0, 256, (count, size), np.uint8)

    def scaled(by: float) -> npt.NDArray[np.uint8]:
        for at, ratio in SCALES_OF[kind].items():
            scales = (by * ratio * rng.uniform(0.9, 1.1, count)).astype("<f2")
            made[:, at : at + 2] = scales[:, None].view(np.uint8)
        return made.reshape(*value.shape[:-1], -1)

    spread = gguf.quants.dequantize(scaled(0.01), kind).std()
    return scaled(0.01 * float(value.std() / spread))


SCALES_OF = {
    Kind.Q2_K: {80: 1.0, 82: 1.5},
    Kind.Q3_K: {108: 1.0},
    Kind.Q4_K: {0: 1.0, 2: 7.5},
    Kind.Q5_K: {0: 1.0, 2: 15.5},
    Kind.Q6_K: {208: 1.0},
}
"""Offsets of the float16 numbers in a block, and their ratios that give a mean of about 0."""


def naive_logits(file: ModelFile, ids: list[int]) -> Floats:
    """Compute logits [n, V] in float64, position by position, in the layout of the file."""
    source, config = file.tensors, file.config
    weights = {name: source.read(name).astype(np.float64) for name in source.shapes}
    width = config.head_width

    def norm(x: Floats, weight: Floats) -> Floats:
        mean = np.mean(x * x, -1, keepdims=True) + config.rms_eps
        return np.asarray(x / np.sqrt(mean) * weight)

    def rotate(x: Floats) -> Floats:
        """Rotate the pairs of each head, [n, heads, D]: neighbours, or halves."""
        places = np.arange(len(ids))[:, None, None]
        frequencies = config.rope_base ** -(np.arange(0, width, 2) / width)
        angle = places * frequencies / np.array(config.rope_divisors or 1.0)
        half = width // 2
        first, second = (
            (np.s_[..., ::2], np.s_[..., 1::2])
            if file.interleaved
            else (np.s_[..., :half], np.s_[..., half:])
        )
        out = np.empty_like(x)
        out[first] = x[first] * np.cos(angle) - x[second] * np.sin(angle)
        out[second] = x[first] * np.sin(angle) + x[second] * np.cos(angle)
        return out

    x = weights["token_embd.weight"][ids]
    for layer in range(config.layers):
        prefix = f"blk.{layer}."
        part = {
            name.removeprefix(prefix): value
            for name, value in weights.items()
            if name.startswith(prefix)
        }

        def heads_of(name: str, y: Floats, part: dict[str, Floats] = part) -> Floats:
            rows = y @ part[f"attn_{name}.weight"].T + part.get(f"attn_{name}.bias", 0.0)
            heads = rows.reshape(len(ids), -1, width)
            if f"attn_{name}_norm.weight" in part:
                heads = norm(heads, part[f"attn_{name}_norm.weight"])
            return np.asarray(heads)

        y = norm(x, part["attn_norm.weight"])
        q, k, v = rotate(heads_of("q", y)), rotate(heads_of("k", y)), heads_of("v", y)
        mixed = []
        for head in range(config.heads):
            scores = q[:, head] @ k[:, head // config.group].T / np.sqrt(width)
            scores[np.triu_indices(len(ids), 1)] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(scores / scores.sum(-1, keepdims=True) @ v[:, head // config.group])
        x = x + np.concatenate(mixed, -1) @ part["attn_output.weight"].T
        y = norm(x, part["ffn_norm.weight"])
        gate = y @ part["ffn_gate.weight"].T
        gated = gate / (1 + np.exp(-gate)) * (y @ part["ffn_up.weight"].T)
        x = x + gated @ part["ffn_down.weight"].T
    head = weights.get("output.weight", weights["token_embd.weight"])
    return np.asarray(norm(x, weights["output_norm.weight"]) @ head.T)
