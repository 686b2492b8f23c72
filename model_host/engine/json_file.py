"""JSON files beside a model's weights, read within bounds. Standard library only."""

import json
from pathlib import Path
from typing import Any

from model_host.errors import ModelFileInvalid, ModelFileMissing

BYTES_MAX = 64 * 1024 * 1024
"""The largest tokenizers have some 30 MB."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelFileMissing or ModelFileInvalid."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileInvalid(f"{path} isn't a JSON object.")
    return value


def read_text(path: Path) -> str:
    """Read a text file. Raises ModelFileMissing or ModelFileInvalid."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise ModelFileMissing(f"There is no file {path}.") from error
    except OSError as error:
        raise ModelFileMissing(f"{path} can't be read: {error.strerror}.") from error
    if len(data) > BYTES_MAX:
        raise ModelFileInvalid(f"{path} has more than {BYTES_MAX} bytes.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ModelFileInvalid(f"{path} isn't UTF-8.") from error
