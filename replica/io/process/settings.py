"""Settings from flags, the environment and a TOML file, and what is said of a wrong one.

Whoever reads the message knows no file of ours: it names the flag, the variable, or the file
and its line that the value is from.
"""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from replica.errors import RequestRefused

if TYPE_CHECKING:  # pydantic costs each replica's process 0.1 s, which may have no settings
    from pydantic_settings import BaseSettings

S = TypeVar("S", bound="BaseSettings")

_FIELD = re.compile(r'field "(\w+)"')
"""The field in the message of a variable that is no JSON, which is an error without fields."""


class ConfigInvalid(RequestRefused):
    """A setting has no such value, or there is no such setting."""

    reason = "CONFIG_INVALID"
    next_step = "Correct it where it is set: in the flag, the variable or the line of the file."


def at_home(path: Path) -> Path:
    """Return a path with its `~` or `~USER` expanded. Raises ConfigInvalid without such a home."""
    try:
        return path.expanduser()
    except RuntimeError as error:  # of a user that the system does not know, as in a container
        raise ConfigInvalid(f"'{path}': no such home folder is known here; set HOME") from error


def make_settings(
    settings: type[S], given: Mapping[str, Any], *, file: Path, flags: Mapping[str, str]
) -> S:
    """Return the settings of `file` under those of the environment and those `given` by flags.

    `flags` are the names of those that differ from the setting's. Raises ConfigInvalid.
    """
    try:
        _require_regular(file)
        return settings(**given)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:  # states line and column
        raise ConfigInvalid(f"{file.absolute()}: {error}") from error
    except OSError as error:
        raise ConfigInvalid(f"{file.absolute()}: {error.strerror or error}") from error
    except UnicodeEncodeError as error:  # of our words about a value, which they repeat
        words = ascii(error.object)[1:-1]
        raise ConfigInvalid(f"a flag or a variable is not UTF-8: {words}") from error
    except ValueError as error:
        field, words = _fault(error, settings)
        raise ConfigInvalid(f"{_place(field, settings, given, file, flags)}: {words}") from error


def _require_regular(file: Path) -> None:
    """Refuse what has the place of a settings file: pydantic goes on as if there were none.

    Such a place may be a folder, which a container has for a file that its machine lacks. A limit
    or a list of keys that the file states would not hold. Raises ConfigInvalid, OSError.
    """
    if file.is_file() or not (file.exists() or file.is_symlink()):
        return
    fault = "is no regular file" if file.exists() else "is a link to no file"
    raise ConfigInvalid(f"{file.absolute()} {fault}")


_SERVICE_LINK = re.compile(
    r"\w+_((SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|PORT=\w+://)"
)
"""Kubernetes sets these for each service, so for one that is called antiphon-hub, too."""


def require_known_variables(settings: "type[BaseSettings]", others: Collection[str]) -> None:
    """Refuse a variable with the prefix of `settings` that is no setting and not in `others`.

    Raises ConfigInvalid.
    """
    prefix = settings.model_config.get("env_prefix", "")
    for variable, value in sorted(os.environ.items()):
        name = variable.upper()  # pydantic reads variables in either case
        field = name.removeprefix(prefix).lower()
        is_known = field in settings.model_fields or name in others
        is_link = _SERVICE_LINK.match(f"{name}={value}") is not None
        if name.startswith(prefix) and not (is_known or is_link):
            raise ConfigInvalid(f"{variable}: {_no_setting(field, settings)}")


def _no_setting(name: str, settings: "type[BaseSettings]") -> str:
    near = get_close_matches(name, settings.model_fields, 1)
    return "no setting has this name" + (f"; '{near[0]}' is one" if near else "")


def _fault(error: ValueError, settings: "type[BaseSettings]") -> tuple[str, str]:
    """Return the field that an error of pydantic's is about, and what is wrong with it."""
    errors = getattr(error, "errors", None)
    if errors is None:
        found = _FIELD.search(str(error))
        return (found[1] if found else ""), "this is no JSON, as a list in a variable has to be"
    first = errors()[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return field, _no_setting(field, settings)
    words = str(first["msg"])
    ours = words.removeprefix("Value error, ")  # may begin with a name as it was given
    return field, ours if ours != words else words[:1].lower() + words[1:]


def _place(
    field: str,
    settings: "type[BaseSettings]",
    given: Mapping[str, Any],
    file: Path,
    flags: Mapping[str, str],
) -> str:
    """Return where a value is from, in their order of precedence."""
    if field in given:
        return flags.get(field, "--" + field.replace("_", "-"))
    variable = f"{settings.model_config.get('env_prefix', '')}{field}".upper()
    return variable if variable in os.environ else f"{file.absolute()}: {field}"
