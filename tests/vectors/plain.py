"""What the vectors alone need: their files, and the functions of chapter 00.

Nothing of the project is imported, here and in the tests that use this: whoever has the
chapters and the files needs no more.
"""

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent.parent / "spec" / "vectors"

Vector = dict[str, Any]


def file_of(name: str) -> Vector:
    return json.loads((FOLDER / f"{name}.json").read_text())


def vectors_of(name: str, of: str | None = None) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in file_of(name)["vectors"] if v.get("of") == of]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def pae(tag: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(tag)) + tag + struct.pack("<Q", len(data)) + data


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


unhex = bytes.fromhex
