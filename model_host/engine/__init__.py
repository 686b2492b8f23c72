"""The torch engine, behind model_host/engine_api.py.

Names are imported at their first use: torch takes a second to import, and a digest or a
model's header needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# First: what is imported later loads torch.
from model_host.engine import compute_threads, torch_import

if TYPE_CHECKING:
    from model_host.engine.any_format import open_model
    from model_host.engine.file_digest import file_sha256
    from model_host.engine.model_file import ModelFile, naming
    from model_host.engine.shapes import CONTEXT_TOKENS_DEFAULT
    from model_host.engine.tokenizer import Tokenizer
    from model_host.engine.torch_engine import TorchEngine
    from model_host.engine.weights import soonest_numerics

__all__ = [
    "CONTEXT_TOKENS_DEFAULT",
    "ModelFile",
    "Tokenizer",
    "TorchEngine",
    "compute_threads",
    "file_sha256",
    "naming",
    "open_model",
    "soonest_numerics",
    "torch_import",
]

_MODULES = {
    "CONTEXT_TOKENS_DEFAULT": "shapes",
    "ModelFile": "model_file",
    "Tokenizer": "tokenizer",
    "TorchEngine": "torch_engine",
    "file_sha256": "file_digest",
    "naming": "model_file",
    "open_model": "any_format",
    "soonest_numerics": "weights",
}


def __getattr__(name: str) -> Any:
    """Import the module that defines a name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
