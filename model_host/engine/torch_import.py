"""The import of torch at the start of a host, which is most of the time that it takes.

Torch's library is loaded in a thread while other modules are imported. Two of its modules,
which only its compiler needs, are left out, and are imported when something asks for them
(DECISIONS D380).
"""

import ctypes
import importlib.util
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

DEFERRED = ("torch._meta_registrations", "torch.export")
"""Modules that `import torch` imports, and that nothing here uses: a fifth of its time."""


def begin_loading() -> None:
    """Load torch's library in a thread; it needs the interpreter for none of it."""
    found = importlib.util.find_spec("torch")
    if found is not None and found.origin is not None:
        library = Path(found.origin).parent / "lib" / "libtorch_cpu.so"
        Thread(target=_load, args=(library,), name="torch's library", daemon=True).start()


def _load(library: Path) -> None:
    if library.exists():  # it has another name on other systems; `import torch` loads it there
        ctypes.CDLL(str(library))


def import_torch() -> None:
    """Import torch without its deferred modules, unless it is imported already."""
    if "torch" in sys.modules:
        return
    for name in DEFERRED:
        sys.modules[name] = ModuleType(name)
    try:
        import torch
    finally:
        for name in DEFERRED:
            del sys.modules[name]
    for name in DEFERRED:
        vars(torch).pop(name.removeprefix("torch."), None)
