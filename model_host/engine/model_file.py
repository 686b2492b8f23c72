"""A model as its files state it, whatever their format (spec/07-host §7). No torch here.

Tensors have GGUF's names: token_embd, output_norm, output, and per block i blk.i.attn_q,
attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down, the norms and the biases.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from model_host.engine.file_digest import FileState, file_state
from model_host.engine.four_bits import FourBits
from model_host.engine.regular_file import open_regular
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileChanged,
    ModelFileError,
    ModelFileInvalid,
    ModelFileMissing,
    ModelFileTruncated,
    ModelTensorMissing,
    TokenizerUnknown,
)
from model_host.model_config import CONTEXT_TOKENS_MIN, ModelConfig
from model_host.refusals import cleaned
from replica.limits import HOST_TEXT_BYTES_MAX

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Families of dense models that the engine runs."""
DETAIL_CHARACTERS_MAX = 4_096 + 1_000
"""Characters of an error of a model: its path, and the words about it."""
RMS_EPS_MAX = 1.0
"""Models have some 1e-5. One beyond float32 can't be added to anything."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of tokens, as llama.cpp numbers them."""
UNNAMED = "unnamed"
"""The name of a model that has none."""


@dataclass(frozen=True, slots=True)
class TokenizerData:
    """The tokenizer as the model's files state it; ids are indexes into `tokens`.

    The flag to add a BOS token is left out: control tokens come from the template alone.
    `types` are llama.cpp's. `pre` is llama.cpp's name of the pre-tokenizer, or a JSON object that
    describes it; of a SentencePiece tokenizer, whether text behind a control token is spaced.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int | None
    eos_id: int | None
    end_ids: tuple[int, ...] = ()
    """Ids beside `eos_id` with which a turn ends, as the files list them, ascending."""


class TensorSource(Protocol):
    """The tensors of a model, read one at a time by their GGUF names."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, outermost dimension first."""

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """Read a tensor as float32. Raises a subclass of ModelFileError."""

    def is_four_bits(self, name: str) -> bool:
        """Say whether a tensor is a matrix of four-bit numbers."""

    def read_four_bits(self, name: str) -> FourBits:
        """Read such a matrix as it is. Raises a subclass of ModelFileError."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model whose files passed every check and hold all of its tensors.

    `sha256` covers the weights, and `name` is one of `name_from`. `sampling` has the numbers that
    the files recommend, by the names of `Sampling` and unchecked. With `interleaved` the query and
    key rows of a head are pairs (2i, 2i + 1), as in GGUF's llama architecture, and not halves
    (i, i + D/2).
    """

    path: Path
    sha256: bytes
    name: str
    config: ModelConfig
    tokenizer: TokenizerData
    template: str
    interleaved: bool
    tensors: TensorSource
    states: Mapping[Path, FileState | None]
    """Of each file that `sha256` covers, from before anything of it was read."""
    sampling: Mapping[str, object] = field(default_factory=dict)

    def check_unchanged(self) -> None:
        """Raise ModelFileChanged unless all that was read so far is of the files of `sha256`.

        The header, the digest and the tensors are read one after the other, by the path.
        """
        changed = [path for path, state in self.states.items() if file_state(path) != state]
        if changed:
            raise ModelFileChanged(f"{changed[0]} was changed or replaced while it was read.")


def read_part(path: Path, offset: int, nbytes: int, name: str) -> npt.NDArray[np.uint8]:
    """Read the bytes of a tensor; they are not mapped (DECISIONS D739).

    Raises ModelFileMissing or ModelFileTruncated.
    """
    try:
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(nbytes)
    except OSError as error:
        raise ModelFileMissing(f"{path} can't be read: {error.strerror or error}.") from error
    if len(data) != nbytes:
        raise ModelFileTruncated(f"{path} ends inside {name}.")
    return np.frombuffer(data, np.uint8)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let the errors of a block name this file where they do not yet, each in one line.

    A detail may repeat a text of the file, which has any length and any characters.
    """
    try:
        yield
    except (ModelFileError, TokenizerUnknown) as error:
        detail = error.detail if str(path) in error.detail else f"{path}: {error.detail}"
        raise type(error)(cleaned(detail, DETAIL_CHARACTERS_MAX)) from error


def name_from(*stated: object) -> str:
    """Return the first name that has a character to show, as a line that a hub takes."""
    shown = (cleaned(str(name), HOST_TEXT_BYTES_MAX) for name in stated if name is not None)
    name = next(filter(None, shown), UNNAMED)
    return name.encode()[:HOST_TEXT_BYTES_MAX].decode(errors="ignore")


def layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors of one block, without the prefix blk.i."""
    c, q, kv = config, config.heads * config.head_width, config.kv_heads * config.head_width
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (c.width,),
        "attn_q.weight": (q, c.width),
        "attn_k.weight": (kv, c.width),
        "attn_v.weight": (kv, c.width),
        "attn_output.weight": (c.width, q),
        "ffn_norm.weight": (c.width,),
        "ffn_gate.weight": (c.ffn_width, c.width),
        "ffn_up.weight": (c.ffn_width, c.width),
        "ffn_down.weight": (c.width, c.ffn_width),
    }
    if c.qkv_bias:
        shapes |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if c.qk_norm:
        shapes |= {"attn_q_norm.weight": (c.head_width,), "attn_k_norm.weight": (c.head_width,)}
    return shapes


def _expected(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each tensor of a model."""
    yield "token_embd.weight", (config.vocab, config.width)
    yield "output_norm.weight", (config.width,)
    if not config.tied:
        yield "output.weight", (config.vocab, config.width)
    block = layer_shapes(config)
    for layer in range(config.layers):
        for name, shape in block.items():
            yield f"blk.{layer}.{name}", shape


def check_tensors(
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    optional: Mapping[str, tuple[int, ...]] | None = None,
    own_name: Callable[[str], str] = str,
) -> None:
    """Raise ModelTensorMissing or ModelArchitectureUnknown for tensors unlike the expected.

    `own_name` turns a GGUF name into that of the file, for the messages. The first tensor that
    is missing ends the check, so that a wrong count of layers takes no time.
    """
    known = {name for name in optional or {} if name in shapes}
    wanted = ((name, (optional or {})[name]) for name in sorted(known))
    for name, shape in chain(_expected(config), wanted):
        if name not in shapes:
            raise ModelTensorMissing(f"{own_name(name)} is missing.")
        if shapes[name] != shape:
            raise ModelTensorMissing(f"{own_name(name)} has shape {shapes[name]}, not {shape}.")
        known.add(name)
    if unknown := sorted(shapes.keys() - known):
        # A bias or a norm that is ignored would give wrong answers without an error.
        raise ModelArchitectureUnknown(
            f"The engine doesn't know the tensor {own_name(unknown[0])}."
        )


def check_config(config: ModelConfig) -> None:
    """Raise ModelFileInvalid for numbers with which nothing can be computed."""
    if config.context_tokens < CONTEXT_TOKENS_MIN:
        raise ModelFileInvalid(
            f"Its context has {config.context_tokens} token, and not {CONTEXT_TOKENS_MIN} at least."
        )
    if config.rms_eps > RMS_EPS_MAX:
        raise ModelFileInvalid(f"Its RMS epsilon is {config.rms_eps}, above {RMS_EPS_MAX}.")


def number(fields: Mapping[str, object], key: str, default: float | None = None) -> float:
    """Return a positive number that a double holds. Raises ModelFileInvalid."""
    value = fields.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelFileInvalid(f"{key} is missing or isn't a number.")
    if not 0 < value <= sys.float_info.max:
        raise ModelFileInvalid(f"{key} isn't a positive number that a double holds.")
    return value


def count(fields: Mapping[str, object], key: str, default: int | None = None) -> int:
    """Return a positive whole number of a configuration. Raises ModelFileInvalid."""
    value = number(fields, key, default)
    if not isinstance(value, int):
        raise ModelFileInvalid(f"{key} isn't a whole number.")
    return value


def check_token_id(value: object, name: str, vocab: int) -> int | None:
    """Return an optional id. Raises ModelFileInvalid if it is outside the vocabulary."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab:
        raise ModelFileInvalid(f"{name} is {value!r}, not an id below {vocab}.")
    return value
