"""A hub with one more method, which does nothing: python -m bench.empty_hub, with syncd's flags.

No method of a hub is one to compare with: calls that need no key have turns (spec/11-limits).
"""

import sys
from typing import Any

import grpc

from syncd.__main__ import main

SERVICE, METHOD = "bench.Empty", "Call"
PATH = f"/{SERVICE}/{METHOD}"

_server = grpc.aio.server


async def _nothing(_request: bytes, _context: object) -> bytes:
    return b""


def _with_empty(*args: Any, **options: Any) -> grpc.aio.Server:
    server = _server(*args, **options)
    handlers = {METHOD: grpc.unary_unary_rpc_method_handler(_nothing)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


if __name__ == "__main__":
    grpc.aio.server = _with_empty
    sys.exit(main())
