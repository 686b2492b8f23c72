"""A tiny GGUF of the llama architecture, and a naive forward pass over its tensors."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from model_host.engine.gguf_file import ModelFile
from model_host.engine.tokenizer import _CHARACTER_OF

LAYERS, WIDTH, HEADS, KV_HEADS, FFN, CONTEXT = 2, 64, 4, 2, 96, 1024
CONTROL = ("<|end|>", "<|start|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w")
TOKENS = (*CONTROL, *_CHARACTER_OF, *(merge.replace(" ", "") for merge in MERGES))

Floats = npt.NDArray[np.float64]


def tensors(seed: int = 1) -> dict[str, npt.NDArray[np.float32]]:
    """Make every tensor of the architecture, with head and embedding separate."""
    rng = np.random.default_rng(seed)
    head = WIDTH // HEADS
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output": (len(TOKENS), WIDTH)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_q": (WIDTH, WIDTH),
            f"blk.{layer}.attn_k": (KV_HEADS * head, WIDTH),
            f"blk.{layer}.attn_v": (KV_HEADS * head, WIDTH),
            f"blk.{layer}.attn_output": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_gate": (FFN, WIDTH),
            f"blk.{layer}.ffn_up": (FFN, WIDTH),
            f"blk.{layer}.ffn_down": (WIDTH, FFN),
        }
    made = {name: rng.normal(0, 0.2, shape) for name, shape in shapes.items()}
    norms = [f"blk.{i}.{kind}_norm" for i in range(LAYERS) for kind in ("attn", "ffn")]
    made |= {name: rng.uniform(0.5, 1.5, WIDTH) for name in (*norms, "output_norm")}
    return {f"{name}.weight": value.astype(np.float32) for name, value in made.items()}


def write(
    path: Path,
    *,
    architecture: str = "llama",
    left_out: str = "",
    extra: dict[str, npt.NDArray[np.float32]] | None = None,
    pre: str = "smollm",
    user_defined: tuple[str, ...] = (),
    eos_id: int | None = None,
) -> Path:
    """Write the model, with one defect if asked for."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(TOKENS))
    kinds = [3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL))
    for text in user_defined:
        kinds[TOKENS.index(text)] = 4
    writer.add_token_types(kinds)
    if eos_id is not None:
        writer.add_eos_token_id(eos_id)
    writer.add_token_merges(list(MERGES))
    writer.add_chat_template("{{ messages }}")
    for name, value in (tensors() | (extra or {})).items():
        if name != left_out:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def naive_logits(file: ModelFile, ids: list[int]) -> Floats:
    """Compute logits [n, V] in float64, position by position, in the layout of the file."""
    weights = {k: v.astype(np.float64) for k, v in file.tensors(list(file.entries)).items()}
    config = file.config
    width = config.head_width

    def norm(x: Floats, name: str) -> Floats:
        mean = np.mean(x * x, -1, keepdims=True) + config.rms_eps
        return np.asarray(x / np.sqrt(mean) * weights[f"{name}.weight"])

    def rotate(x: Floats) -> Floats:
        """Rotate the pairs (2i, 2i + 1) of each head, [n, heads, D], the layout of GGUF."""
        places = np.arange(len(ids))[:, None, None]
        angle = places / config.rope_base ** (np.arange(0, width, 2) / width)
        even, odd = x[..., ::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., ::2] = even * np.cos(angle) - odd * np.sin(angle)
        out[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
        return out

    x = weights["token_embd.weight"][ids]
    for layer in range(config.layers):
        part = {
            name.split(".")[2]: value
            for name, value in weights.items()
            if name.startswith(f"blk.{layer}.")
        }
        y = norm(x, f"blk.{layer}.attn_norm")
        q = rotate((y @ part["attn_q"].T).reshape(len(ids), config.heads, width))
        k = rotate((y @ part["attn_k"].T).reshape(len(ids), config.kv_heads, width))
        v = (y @ part["attn_v"].T).reshape(len(ids), config.kv_heads, width)
        heads = []
        for head in range(config.heads):
            scores = q[:, head] @ k[:, head // config.group].T / np.sqrt(width)
            scores[np.triu_indices(len(ids), 1)] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, head // config.group])
        x = x + np.concatenate(heads, -1) @ part["attn_output"].T
        y = norm(x, f"blk.{layer}.ffn_norm")
        gate = y @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ part["ffn_up"].T)) @ part["ffn_down"].T
    return np.asarray(norm(x, "output_norm") @ weights["output.weight"].T)
