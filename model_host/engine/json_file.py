"""JSON files beside a model's weights, read within bounds. Standard library only."""

import json
import re
from pathlib import Path
from typing import Any

from model_host.engine.regular_file import open_regular
from model_host.errors import ModelFileInvalid, ModelFileMissing

BYTES_MAX = 64 * 1024 * 1024
"""The largest tokenizers have some 30 MB."""
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of a surrogate, alone or in a pair: without any the file is UTF-8 as it is read."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, whose texts are UTF-8. Raises ModelFileMissing or ModelFileInvalid."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileInvalid(f"{path} isn't a JSON object.")
    if _ESCAPED.search(text) and (place := _place_of_surrogate(value)) is not None:
        raise ModelFileInvalid(f"{path} has half a surrogate pair, which is no text, in {place}.")
    return value


def _place_of_surrogate(value: object) -> str | None:
    """Return the path of the first text with a lone surrogate; None if there is none."""
    left: list[tuple[str, object]] = [("", value)]
    while left:
        place, found = left.pop()
        if isinstance(found, str) and _SURROGATE.search(found):
            return place or "a name"
        if isinstance(found, dict):
            left += [(place, name) for name in found]
            left += [(_inside(place, name), item) for name, item in found.items()]
        elif isinstance(found, list):
            left += [(_inside(place, str(index)), item) for index, item in enumerate(found)]
    return None


def _inside(place: str, name: str) -> str:
    shown = ascii(name)[1:-1]
    return f"{place}.{shown}" if place else shown


def read_text(path: Path) -> str:
    """Read a text file. Raises ModelFileMissing or ModelFileInvalid."""
    try:
        with open_regular(path) as file:
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
