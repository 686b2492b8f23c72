"""A model by its path, in either format."""

from pathlib import Path

from model_host.engine.gguf_file import open_model_file
from model_host.engine.hf_folder import open_folder
from model_host.engine.model_file import ModelFile


def open_model(path: Path | str) -> ModelFile:
    """Open a GGUF file or a Hugging Face folder and check all of it.

    Raises a subclass of ModelFileError, or TokenizerUnknown.
    """
    path = Path(path)
    file = open_folder(path) if path.is_dir() else open_model_file(path)
    file.check_unchanged()
    return file
