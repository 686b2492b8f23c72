"""Threads get the lock in the order in which they asked."""

import threading
import time

import pytest

from model_host.io.threads.fair_lock import FairLock


def test_threads_get_the_lock_in_the_order_in_which_they_asked() -> None:
    lock, order = FairLock(), list[int]()

    def ask(number: int) -> None:
        with lock:
            order.append(number)

    with lock:
        threads = []
        for number in range(8):
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
            while lock.waiting <= number:
                time.sleep(0)
    for thread in threads:
        thread.join()
    assert order == [*range(8)]


def test_a_thread_that_asks_again_at_once_waits_behind_another() -> None:
    lock, order = FairLock(), list[str]()

    def other() -> None:
        with lock:
            order.append("other")

    with lock:
        thread = threading.Thread(target=other)
        thread.start()
        while not lock.waiting:
            time.sleep(0)
    with lock:
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


def test_an_error_frees_the_lock() -> None:
    lock = FairLock()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lock:
            _ = 1 // 0
    with lock:
        assert lock.waiting == 0
