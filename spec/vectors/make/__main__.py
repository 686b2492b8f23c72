"""Write the vector files beside this package."""

import json
from pathlib import Path

from spec.vectors.make import (
    admission,
    digests,
    headers,
    order,
    sampler,
    signatures,
    visibility,
    wire,
)

FOLDER = Path(__file__).parent.parent

FILES = {
    "entry.json": headers.build,
    "wire.json": wire.build,
    "signature.json": signatures.build,
    "admission.json": admission.build,
    "visibility.json": visibility.build,
    "order.json": order.build,
    "digest.json": digests.build,
    "sampler.json": sampler.build,
}


def text(name: str) -> str:
    """Return the content of one file."""
    return json.dumps(FILES[name](), indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    """Write all files."""
    for name in FILES:
        (FOLDER / name).write_text(text(name))
        print(name)


if __name__ == "__main__":
    main()
