"""Models of random weights, loaded as a host loads one at its second start.

A verdict of the self-test is kept for a machine, the weights and the code of the engine: a test
that changes none of them need not wait for it again. Converted weights are not kept, since how
they are read from their file is what many tests show.
"""

import os
from pathlib import Path

from model_host.engine.torch_engine import TorchEngine


def cache_dir() -> Path:
    """Return the folder in which hosts keep models, weights and verdicts."""
    return Path(os.environ.get("ANTIPHON_CACHE_DIR") or "~/.cache/antiphon").expanduser()


def load_random(path: Path, numerics: str, *, context_tokens: int | None = None) -> TorchEngine:
    """Load a model; the verdicts of each number format have a folder, of which each keeps a few."""
    return TorchEngine.load(
        path,
        numerics=numerics,
        threads=1,
        cache_dir=cache_dir() / "tests" / numerics,
        cache_bytes=0,
        context_tokens=context_tokens,
    )
