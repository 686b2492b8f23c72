"""An alarm rings once, at the time that was set last."""

import asyncio
import time

from replica.io.process.alarm import Alarm


async def test_it_rings_at_the_time_set_last() -> None:
    rings: list[float] = []
    rung = asyncio.Event()

    def ring() -> None:
        rings.append(time.monotonic())
        rung.set()

    alarm, began = Alarm(ring), time.monotonic()
    alarm.set(began + 60.0)
    alarm.set(began + 0.02)
    alarm.set(began + 0.02)
    async with asyncio.timeout(20):
        await rung.wait()
    assert len(rings) == 1
    assert rings[0] >= began + 0.01
    rung.clear()
    alarm.set(began + 0.02)  # it may be set again, to a time that is over too
    async with asyncio.timeout(20):
        await rung.wait()


async def test_unset_it_does_not_ring() -> None:
    rung, later = asyncio.Event(), asyncio.Event()
    alarm = Alarm(rung.set)
    alarm.set(time.monotonic() + 0.01)
    alarm.set(None)
    Alarm(later.set).set(time.monotonic() + 0.02)
    async with asyncio.timeout(20):
        await later.wait()
    assert not rung.is_set()
