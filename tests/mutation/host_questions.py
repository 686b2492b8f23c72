"""Questions about a host's pure functions: draws, and lineage keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphon.conformance.questions import Case


def cases(folder: Path) -> Iterator[Case]:
    """Return the cases of the vectors of draws, samplers and lineage."""
    for name in ("draw", "sampler", "lineage"):
        vectors = json.loads((folder / f"{name}.json").read_text())["vectors"]
        for number, vector in enumerate(vectors):
            question = {"ask": vector.get("of", name), **vector}
            yield Case(f"{name}/{number}-{vector['name']}", (), question, _expected(vector, name))


def _expected(vector: dict[str, Any], name: str) -> dict[str, Any]:
    match vector.get("of", name):
        case "draw":
            return {"scores": vector["scores"], "kept": vector["kept"], "token": vector["token"]}
        case "sampler":
            return {n: vector[n] for n in ("weights", "token", "recorded")}
        case "namespace":
            return {"digest": vector["digest"]}
        case "salt":
            return {"domain_salt": vector["domain_salt"]}
        case _:
            return {"keys": [expected["key"] for expected in vector["keys"]]}
