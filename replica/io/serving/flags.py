"""Settings of a daemon as flags of its command."""

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from replica.io.process import (
    ConfigInvalid,
    make_settings,
    require_known_variables,
)
from replica.io.serving.grpc_server import explain

if TYPE_CHECKING:  # pydantic costs each replica's process 0.1 s, and only daemons use it
    from pydantic.fields import FieldInfo
    from pydantic_settings import BaseSettings

S = TypeVar("S", bound="BaseSettings")

_ADDS: dict[object, str] = {list: "extend", tuple: "append"}
"""How a flag of a setting with several values adds to them."""


def read_settings(
    settings: type[S],
    arguments: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    flags: Mapping[str, str],
    others: Collection[str] = (),
) -> S:
    """Return the settings of a command's `arguments`, None for those of the process.

    Each setting is a flag, its docstring the help; `flags` names those that differ from the
    setting's name, and `others` the variables with the prefix that another program reads. Ends
    the process as argparse does: after --help and --print-config with status 0, for bad
    arguments and variables with 2.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    for name, field in settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        several = isinstance(default, list)
        parser.add_argument(
            flags.get(name, "--" + name.replace("_", "-")),
            dest=name,
            action=_ADDS.get(type(default), "store"),
            nargs="+" if several else None,  # none would mean everyone
            metavar=_word(field) if several else None,
            help=f"{field.description} (default: {_shown(default)})".replace("%", "%%"),
        )
    parser.add_argument("--print-config", action="store_true", help="Print settings and exit.")
    given = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    print_config = given.pop("print_config")
    file = Path(str(settings.model_config.get("toml_file", "")))
    try:
        require_known_variables(settings, others)
        config = make_settings(settings, given, file=file, flags=flags)
    except ConfigInvalid as error:
        parser.exit(2, f"{explain(prog, error)}\n")
    if print_config:
        sys.stdout.write(json.dumps(config.model_dump(mode="json"), indent=2) + "\n")
        parser.exit()
    return config


def _word(field: "FieldInfo") -> str:
    """Return the word for one value of several in the help; a field may state it as `metavar`."""
    stated = field.json_schema_extra
    return str(stated["metavar"]) if isinstance(stated, dict) and "metavar" in stated else "HEX"


def _shown(default: object) -> str:
    if isinstance(default, list | tuple):
        default = ", ".join(map(str, default))
    return "none" if default in (None, "") else str(default)
