"""Work in a thread ends before its caller does."""

import asyncio
import gc
import threading
from contextlib import suppress
from weakref import ReferenceType, ref

import pytest

from replica.io.process.to_the_end import to_the_end


async def test_the_result_and_the_error_are_those_of_the_work() -> None:
    assert await to_the_end(asyncio.to_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await to_the_end(asyncio.to_thread(divmod, 1, 0))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_caller_that_is_cancelled_ends_behind_the_work(fails: bool) -> None:
    begun, free, ended = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert free.wait(30)
        ended.append("work")
        if fails:
            raise ValueError

    async def call() -> None:
        try:
            await to_the_end(asyncio.to_thread(work))
        finally:
            ended.append("caller")

    calling = asyncio.create_task(call())
    await asyncio.wait([calling], timeout=0)
    await asyncio.to_thread(begun.wait)
    for _ in range(2):  # the second one too
        calling.cancel()
        await asyncio.wait([calling], timeout=0)
    free.set()
    await asyncio.wait([calling])
    assert ended == ["work", "caller"]
    assert calling.cancelled()


async def test_an_error_keeps_nothing_of_its_caller() -> None:
    class Used:
        """What a caller uses."""

    async def call() -> ReferenceType[Used]:
        used = Used()
        with suppress(ZeroDivisionError):
            await to_the_end(asyncio.to_thread(divmod, 1, 0))
        return ref(used)

    gc.collect()
    gc.disable()
    try:
        assert (await call())() is None
    finally:
        gc.enable()
