"""A process that opens a shared store and writes to it until it is killed.

    python -m tests.support.store_process STORE

It begins a conversation and prints its id, then the id of each message once it is durable.
"""

import asyncio
import sys
from pathlib import Path

from replica.conversation import newest_place
from replica.io import Replica
from replica.log import Genesis
from tests.support.writers import Writer, said


async def main(path: Path) -> None:
    """Write as fast as the disk allows."""
    async with Replica.open(path, Writer(1).key, shared=True, label="other") as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        print(conversation.hex(), flush=True)
        while True:
            place = newest_place(await replica.load(conversation))
            entry = await replica.append(conversation, said("other"), parents=place.parents)
            print(entry.id.hex(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
