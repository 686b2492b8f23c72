"""The packages that a model host needs, an extra of this distribution."""

import re
from importlib import metadata

INSTALL_HOST = "`pip install 'antiphon[host]'` installs what a model host needs, with torch."
_OF_HOST = re.compile(r"""([\w.-]+).*;.*\bextra == ["']host["']""")


def missing_host_packages() -> tuple[str, ...]:
    """Return the names of those that are not installed; none where this is no distribution."""
    try:
        stated = metadata.requires("antiphon") or ()
    except metadata.PackageNotFoundError:
        return ()
    names = (found[1] for found in map(_OF_HOST.match, stated) if found)
    return tuple(name for name in names if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
