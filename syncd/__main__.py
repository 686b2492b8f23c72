"""Run a hub: python -m syncd."""

import argparse
import asyncio
import json
import sys

from pydantic import ValidationError

from replica.aio.daemon import log_to_stderr, stop_with_supervisor
from replica.aio.serving import explain
from replica.errors import AntiphonError
from syncd.aio.server import serve
from syncd.config import HubConfig


def main() -> int:
    """Read settings, run, and say in words what went wrong."""
    log_to_stderr()
    parser = argparse.ArgumentParser(prog="python -m syncd", description="Run an Antiphon hub.")
    for name, field in HubConfig.model_fields.items():
        flag = "--" + name.replace("_", "-")
        nargs = "*" if name == "creators" else None
        parser.add_argument(flag, nargs=nargs, help=f"default: {field.get_default()}")
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
