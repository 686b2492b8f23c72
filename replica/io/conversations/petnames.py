"""Names for keys, chosen by the user of a replica and kept beside its log."""

import json

from replica.conversation import EntryStore, check_name
from replica.ids import PublicKey
from replica.io.driver import Replica
from replica.refusals import ArgumentInvalid, ValueDamaged

_NAMES = "petnames"
NAMES_MAX = 4_096


async def names(store: EntryStore) -> dict[PublicKey, str]:
    """Return the name of each key that has one; none if they are damaged."""
    try:
        raw = await store.get_meta(_NAMES)
    except ValueDamaged:
        return {}  # as for other choices of the user, which are made again
    return {PublicKey(bytes.fromhex(k)): v for k, v in json.loads(raw).items()} if raw else {}


async def set_name(replica: Replica, key: PublicKey, name: str) -> None:
    """Name a key, in place of any name it has. Raises ArgumentInvalid."""
    check_name(name)
    async with replica.processes.changing(_NAMES):
        held = await names(replica.store) | {key: name}
        if len(held) > NAMES_MAX:
            raise ArgumentInvalid(f"{NAMES_MAX} keys have names already")
        record = {one.hex(): text for one, text in held.items()}
        await replica.store.put_meta(_NAMES, json.dumps(record, ensure_ascii=False).encode())
