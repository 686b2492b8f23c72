"""A hub in its own process on a free loopback port, for benchmarks and tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HubProcess:
    """A hub that runs."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU time it has used, user and system, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def hub_process(
    data_dir: Path, module: str = "syncd", *, log: Path | None = None, **environment: str
) -> Iterator[HubProcess]:
    """Start `python -m syncd`, or another module with its flags; end it by its process.

    Its log is written to the file `log`, if there is one.
    """
    command = [sys.executable, "-m", module, "--data-dir", str(data_dir)]
    with Path(os.devnull if log is None else log).open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **environment},
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if not ready:
            raise RuntimeError(f"the hub ended with {process.wait()} before it was ready")
        yield HubProcess(ready[1], process.pid)
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def build_slow_fsync(folder: Path) -> Path:
    """Compile the preloaded fsync that waits; needs gcc."""
    library = folder / "slow_fsync.so"
    source = Path(__file__).with_name("slow_fsync.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library
