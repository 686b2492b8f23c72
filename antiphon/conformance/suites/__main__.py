"""Writes the files of the divergence suite."""

import json
from pathlib import Path

from antiphon.conformance.suites.divergences import divergences

FOLDER = Path(__file__).parent / "divergence"


def main() -> None:
    """Write one file per divergence."""
    for content in divergences():
        path = FOLDER / f"{content['name']}.json"
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
