"""The torch engine, behind model_host/engine_api.py."""

# First: the imports below load torch.
from model_host.engine import compute_threads  # isort: skip
from model_host.engine.file_digest import file_sha256
from model_host.engine.tokenizer import Tokenizer
from model_host.engine.torch_engine import TorchEngine

__all__ = [
    "Tokenizer",
    "TorchEngine",
    "compute_threads",
    "file_sha256",
]
