"""Work in a thread that ends with it."""

import threading

import pytest

from model_host.io.threads.own_thread import in_own_thread


async def test_the_thread_ends_with_its_work() -> None:
    ran = await in_own_thread(threading.current_thread)
    ran.join(10)
    assert ran is not threading.current_thread()
    assert not ran.is_alive()


async def test_an_error_is_raised_in_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(divmod, 1, 0)
