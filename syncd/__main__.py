"""Run a hub: python -m syncd."""

import argparse
import asyncio
import json
import sys

from pydantic import ValidationError

from replica.errors import AntiphonError
from replica.io import explain, log_to_stderr, stop_with_supervisor
from syncd.io import HubConfig, serve

FLAGS = {"host_keys": "--host-key"}
"""Flags whose name differs from the setting's."""


def main() -> int:
    """Read the settings and run; print a message on errors. Returns the exit code."""
    log_to_stderr()
    parser = argparse.ArgumentParser(prog="python -m syncd", description="Run an Antiphon hub.")
    for name, field in HubConfig.model_fields.items():
        flag = FLAGS.get(name, "--" + name.replace("_", "-"))
        default = field.get_default(call_default_factory=True)
        help_ = f"{field.description} (default: {default})"
        if isinstance(default, list):
            parser.add_argument(
                flag, dest=name, action="extend", nargs="*", metavar="HEX", help=help_
            )
        else:
            parser.add_argument(flag, help=help_)
    parser.add_argument("--print-config", action="store_true", help="print settings and exit")
    arguments = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    print_config = arguments.pop("print_config")
    try:
        config = HubConfig(**arguments)
    except ValidationError as error:
        print(f"syncd: {error}", file=sys.stderr)
        return 2
    if print_config:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        return 0
    stop_with_supervisor()
    try:
        asyncio.run(serve(config))
    except AntiphonError as error:
        print(explain("syncd", error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
