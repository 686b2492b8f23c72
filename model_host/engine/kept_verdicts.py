"""Results of the self-test, kept on disk for the next start (spec/07-host §5, HOST-67).

A result is kept under the digest of everything it depends on (`verdict_key`), together with
the numerics class of the machine that ran it. The canary runs at each start. Where its
class is another one, the kernels are not those that were tested, whatever the key says.

A file is: 8 bytes magic, 32 bytes SHA-256 of key and JSON, a JSON object. The hash catches
damage and a file under a wrong name. It is no signature: whoever may write the cache folder
may as well write the program.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from model_host.engine.numerics import SelfTest
from model_host.engine.regular_file import open_regular, written_whole
from model_host.kv import canonical_json

log = logging.getLogger(__name__)

VERDICTS_MAX = 64
"""Files kept; each has some 300 bytes. The oldest are removed."""
_BYTES_MAX = 1 << 16
_MAGIC = b"ANTVRD1\n"
_SUFFIX = ".verdict"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a self-test, and the numerics class it was run in."""

    tested: SelfTest
    numerics_class: bytes


def encode(key: bytes, verdict: Verdict) -> bytes:
    """Return the bytes of a file. Pure."""
    tested = verdict.tested
    body = canonical_json(
        {
            "failures": list(tested.failures),
            "shapes_run": tested.shapes_run,
            "threads_agree": tested.threads_agree,
            "numerics_class": verdict.numerics_class.hex(),
        }
    ).encode()
    return _MAGIC + hashlib.sha256(key + body).digest() + body


def decode(key: bytes, data: bytes) -> Verdict:
    """Return the verdict in a file; the inverse of `encode`. Pure. Raises ValueError."""
    digest, body = data[8:40], data[40:]
    if data[:8] != _MAGIC or hashlib.sha256(key + body).digest() != digest:
        raise ValueError("wrong magic or digest")
    fields = json.loads(body)  # as `encode` wrote it, since the digest is right
    tested = SelfTest(
        tuple(fields["failures"]),
        fields["shapes_run"],
        0.0,
        threads_agree=fields["threads_agree"],
        was_kept=True,
    )
    return Verdict(tested, bytes.fromhex(fields["numerics_class"]))


class KeptVerdicts:
    """The verdicts in a folder."""

    def __init__(self, folder: Path) -> None:
        """Keep files under `folder`/verdicts."""
        self._folder = folder / "verdicts"

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()[:32]}{_SUFFIX}"

    def read(self, key: bytes) -> Verdict | None:
        """Return the verdict under a key; None if there is none, or none that can be used."""
        path = self._path(key)
        try:
            with open_regular(path) as file:
                return decode(key, file.read(_BYTES_MAX))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("self-test result unusable", extra={"path": path, "detail": str(error)})
            return None

    def write(self, key: bytes, verdict: Verdict) -> None:
        """Keep a verdict; a failure is logged, and the next start tests again."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path, _SUFFIX) as file:
                file.write(encode(key, verdict))
            self._remove_oldest()
        except OSError as error:
            log.warning("self-test result not kept", extra={"path": path, "detail": str(error)})

    def _remove_oldest(self) -> None:
        paths = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in paths[:-VERDICTS_MAX]:
            path.unlink(missing_ok=True)
