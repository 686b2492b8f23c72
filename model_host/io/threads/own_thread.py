"""Work in a thread that ends with it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def in_own_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a thread of its own; return its result. Raises what it raises.

    A thread that has computed keeps its compute threads for as long as it lives. If those of
    all threads are more than the cores, OpenMP lets every one of them sleep behind each kernel,
    and a token takes a third longer (DECISIONS D395). So engines are loaded here.
    """
    thread = ThreadPoolExecutor(1)
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, lambda: work(*args, **kwargs))
    finally:
        thread.shutdown(wait=False)
