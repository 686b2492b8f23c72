"""The sampling that a model's files recommend, by the names of `Sampling`. Pure.

model_host/sampling/recommendation.py checks the numbers.
"""

from collections.abc import Mapping
from typing import Any

_GGUF = "general.sampling."
_GGUF_NAMES = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
    "penalty_last_n": "penalty_window",
}
_FOLDER_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def from_gguf(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the numbers that a GGUF file's metadata state."""
    return {ours: fields[_GGUF + key] for key, ours in _GGUF_NAMES.items() if _GGUF + key in fields}


def from_folder(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the numbers of a folder's generation_config.json.

    One that turns sampling off recommends the likeliest token. One without a temperature
    recommends none: the other numbers are then the defaults of a library.
    """
    if fields.get("do_sample") is False:
        return {"temperature": 0.0}
    if fields.get("temperature") is None:
        return {}
    return {name: fields[name] for name in _FOLDER_NAMES if fields.get(name) is not None}
