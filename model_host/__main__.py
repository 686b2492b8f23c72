"""Run a model host: python -m model_host serve | pull | list."""

import argparse
import asyncio
import json
import logging
import sys

from pydantic import ValidationError

from model_host.io import HostConfig, fetch
from replica.errors import AntiphonError
from replica.io import explain, log_to_stderr, stop_with_supervisor


def _serve(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m model_host serve", description="Run an Antiphon model host."
    )
    for name, field in HostConfig.model_fields.items():
        parser.add_argument("--" + name.replace("_", "-"), help=f"default: {field.get_default()}")
    parser.add_argument("--print-config", action="store_true", help="print settings and exit")
    settings = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    print_config = settings.pop("print_config")
    try:
        config = HostConfig(**settings)
    except ValidationError as error:
        print(f"model_host: {error}", file=sys.stderr)
        return 2
    if print_config:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        return 0
    stop_with_supervisor()
    from model_host.io import serve  # imports torch, which `pull` and `list` do without

    asyncio.run(serve(config))
    return 0


def main(arguments: list[str]) -> int:
    """Run the command in `arguments`; print errors, and return the exit status."""
    log_to_stderr()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    command = arguments[0] if arguments else ""
    try:
        match command:
            case "serve":
                return _serve(arguments[1:])
            case "pull" | "list":
                return fetch.main(arguments)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except AntiphonError as error:
        print(explain("model_host", error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
