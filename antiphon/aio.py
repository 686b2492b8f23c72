"""The library with async and await. Import events and `tool` from `antiphon`; errors are in both.

async with antiphon.aio.open("~/agent", hub="127.0.0.1:7411") as me:
    trip = await me.conversation("trip", system="Be brief.")
    print((await trip.ask("Capital of France?")).text)
"""

from antiphon.library.io.conversation import Branch, Conversation
from antiphon.library.io.local import local_replica as local
from antiphon.library.io.replica import Replica, join
from antiphon.library.io.replica import open_replica as open  # noqa: A004
from antiphon.library.io.run import Run
from antiphon.library.raised import *  # noqa: F403  # by name alone, as in `antiphon`

__all__ = ["Branch", "Conversation", "Replica", "Run", "join", "local", "open"]
