"""Verdicts on logs of the vectors, pinned under the version and draft whose rules give them.

`python -m tests.vectors.test_verdicts` adds the logs that are new under the present numbers.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from replica import limits
from spec.vectors.make.__main__ import FOLDER

PINNED = Path(__file__).with_name("verdicts.txt")
NUMBERS = f"{limits.VERSION}.{limits.DRAFT}"


def _short(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _judged() -> dict[str, str]:
    """Return the verdicts on each log: admitted, visible and covered entries, counting seals."""
    found = {}
    for name in ("visibility", "order"):
        for vector in json.loads((FOLDER / f"{name}.json").read_text())["vectors"]:
            judged: dict[str, Any] = {
                k: sorted(vector[k]) if k != "seals" else vector[k]
                for k in ("visible", "covered", "seals")
                if k in vector
            }
            found[_short(vector["entries"])] = _short(judged)
    admission = json.loads((FOLDER / "admission.json").read_text())
    for vector in admission["vectors"]:
        entries = [admission["entries"][n] for n in (*vector["given"], vector["entry"])]
        found[_short(entries)] = _short([vector["verdict"], vector["reason"]])
    return found


def _pinned() -> dict[str, dict[str, str]]:
    rows = [line.split() for line in PINNED.read_text().splitlines()]
    return {numbers: {log: to for n, log, to in rows if n == numbers} for numbers, _, _ in rows}


def test_another_verdict_on_a_log_comes_with_another_number() -> None:
    """Where this fails, a rule has changed: raise DRAFT, then pin the logs anew."""
    now = _judged()
    known = _pinned().get(NUMBERS, {})
    assert len(known) > 200
    changed = {log for log, verdict in known.items() if now.get(log, verdict) != verdict}
    assert changed == set()
    assert len(known.keys() & now.keys()) > 200, "the pinned logs are in the vectors"


if __name__ == "__main__":
    rows = [f"{NUMBERS} {log} {to}\n" for log, to in _judged().items()]
    kept = PINNED.read_text().splitlines(keepends=True) if PINNED.exists() else []
    PINNED.write_text("".join([*kept, *(row for row in rows if row not in kept)]))
