"""Flip a bit of a byte of a data folder, start on it, and judge the outcome.

    python -m tests.faults.flips              every byte of all three folders (hours)
    python -m tests.faults.flips --each 50    every 50th byte

A flip is harmless, or it is healed by the entries that a peer sends again, or a typed
error names a command that mends the folder. Anything else is a violation.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model_host.io.journal import Journals
from replica.conversation.conversation import Conversation
from replica.errors import AntiphonError
from replica.ids import ConversationId
from replica.io import keys
from replica.io.blobs import Blobs
from replica.io.hub_calls import pin, pinned_key
from replica.io.salvage import repair_store
from replica.io.saved_acks import SavedAcks
from replica.io.store import Store
from replica.log.entry import public_key
from replica.refusals import BlobMissing, ValueDamaged
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.policy import Policy
from tests.faults import folders
from tests.faults.folders import Truth
from tests.model_host.kv.plain_pages import filled, restore

SKIPPED = (".lock", "-shm")
"""Files without content of their own."""


class Violation(Exception):
    """A flip that a person would be stuck with, or would not be told of."""


def places(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each byte of a folder: the file's path inside it, and the offset."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith(SKIPPED):
            for at in range(path.stat().st_size):
                yield path.relative_to(folder), at


async def judge(sound: Path, truth: Truth, file: Path, at: int, mask: int) -> str:
    """Flip bits of one byte in a copy; return the outcome. Raises Violation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "folder"
        await asyncio.to_thread(shutil.copytree, sound, folder)
        path = folder / file
        data = bytearray(path.read_bytes())
        data[at] ^= mask
        path.write_bytes(data)
        try:
            return await _start(folder, truth)
        except AntiphonError as error:
            return await _mend(folder, truth, error)


async def _start(folder: Path, truth: Truth) -> str:
    """Use the folder as its process does; return the outcome if that works."""
    if public_key(keys.load_or_create(folder / "identity.key")) != truth.public:
        raise Violation("another identity, without a word")
    if truth.kind == "hub":
        # One bit takes one row, or a page with rows of several conversations. Each that is not
        # served names the entries that a member has to send; one may be unreadable.
        await _use_hub(folder, truth, unserved_max=1)
    outcome = await _use_store(folder, truth)
    if truth.kind == "hub":
        await _use_hub(folder, truth, unserved_max=0)
    if truth.kind == "host":
        _use_host(folder)
    return outcome


async def _mend(folder: Path, truth: Truth, error: AntiphonError) -> str:
    """Run the command that the error names, and start again."""
    if "antiphon repair" in error.next_step:
        keys.repair(folder / "identity.key")
        await repair_store(folder / "log" / "log.db")
        keys.repair(folder / "identity.key")
    elif "antiphon hub trust" in error.next_step:
        async with await Store.open(folder / "log" / "log.db") as store:
            await pin(store, folders.ADDRESS, folders.HUB)
    else:
        raise Violation(f"no command mends {error.reason}: {error.next_step}") from error
    try:
        await _start(folder, truth)
    except AntiphonError as again:
        raise Violation(f"{again.reason} after its own next step: {again.detail}") from again
    return f"mended after {error.reason}"


async def _use_store(folder: Path, truth: Truth) -> str:
    """Read everything; let a peer send what is missing; compare."""
    outcome = "harmless"
    async with await Store.open(folder / "log" / "log.db") as store:
        held = {stored.conversation for stored in await store.conversations()}
        if not held >= truth.entries.keys():
            outcome = "healed"  # a clone brings it back
        for conversation, entries in truth.entries.items():
            loaded = await store.load(conversation)
            restored = Conversation.restore(conversation, loaded.entries, loaded.lost)
            sound = {e.id for e in loaded.entries if e.body == entries[e.id].body}
            lacking = entries.keys() - sound
            if lacking:
                _require_said(restored, lacking, store, entries)
                outcome = "healed"
                await store.append([entries[i] for i in sorted(lacking)])
            if truth.kind != "hub":
                await _use_acks(store, restored)
        if truth.kind != "hub":
            await _use_values(store, truth)
    await _compare(folder, truth)
    return outcome


def _require_said(restored: Conversation, lacking: set, store: Store, entries: dict) -> None:
    """Require that the loss of entries is known: by id, by a missing body, or by number."""
    known = restored.damage.missing | restored.log.pending.keys()
    known |= {e.id for e in restored.log.entries.values() if e.body is None}
    unsaid = lacking - known
    # An entry that nothing names any more is found by comparing heads with a peer.
    named = {i for e in entries.values() for i in e.header.ancestors()}
    if unsaid & named and not (store.lost_count or restored.damage):
        raise Violation(f"{len(unsaid)} entries are gone without a word")


async def _use_acks(store: Store, restored: Conversation) -> None:
    acks = SavedAcks(store, folders.HUB)
    await acks.unacked(restored)


async def _use_values(store: Store, truth: Truth) -> None:
    try:
        current = await store.get_meta(folders.CURRENT)
    except ValueDamaged:
        await store.put_meta(folders.CURRENT, next(iter(truth.entries)))
    else:
        if current not in (None, next(iter(truth.entries))):
            raise Violation("another conversation is the last used")
    pinned = await pinned_key(store, folders.ADDRESS)
    if pinned not in (None, folders.HUB):
        raise Violation("another hub is trusted")


async def _compare(folder: Path, truth: Truth) -> None:
    async with await Store.open(folder / "log" / "log.db") as store:
        for conversation, entries in truth.entries.items():
            loaded = await store.load(conversation)
            found: dict = {e.id: e for e in loaded.entries}
            if found != entries or loaded.lost:
                raise Violation("a peer's entries did not complete the log")


async def _use_hub(folder: Path, truth: Truth, *, unserved_max: int) -> None:
    async with await Store.open(folder / "log" / "log.db") as store:
        blobs = Blobs(folder / "blobs")
        driver = HubDriver(Hub(truth.public, Policy()), store, blobs)
        await driver.start()
        try:
            if folders.DELETED not in driver.hub.deleted:
                raise Violation("a deletion is forgotten")
            unserved = [c for c in truth.entries if not _is_served(driver.hub, c)]
            unsaid = [c for c in unserved if not (unserved_max and _is_asking(driver.hub, c))]
            if len(unsaid) > unserved_max:
                raise Violation(f"{len(unserved)} conversations are not served, without a word")
        finally:
            await driver.stop()
        await _use_blob(blobs, next(iter(truth.entries)))


def _is_asking(hub: Hub, conversation: ConversationId) -> bool:
    held = hub.shelf.get(conversation)
    return held is not None and bool(held.damage.missing)


def _is_served(hub: Hub, conversation: ConversationId) -> bool:
    held = hub.shelf.get(conversation)
    return held is not None and not held.is_blocked


async def _use_blob(blobs: Blobs, conversation: ConversationId) -> None:
    try:
        pieces = [piece async for piece in blobs.read(conversation, folders.BLOB_DIGEST)]
    except BlobMissing:
        return  # its writer writes it again
    if b"".join(pieces) != folders.BLOB:
        raise Violation("other bytes were served under a digest")


def _use_host(folder: Path) -> None:
    read = Journals(folder / "journal").read(folders.HEAD.request)
    if read is not None:
        head, choices = read
        if head != folders.HEAD or choices != folders.TOKENS[: len(choices)]:
            raise Violation("a run resumes as another one")
    store = folders.checkpoints_of(folder)
    try:
        pages = restore(store, b"a", folders.NAMESPACE, [*folders.IDS, 1])
    except AntiphonError:
        return  # computed again from the log
    if pages.tokens and pages != filled(pages.tokens):
        raise Violation("a restored page differs")


async def run(kind: str, each: int, start: int = 0) -> tuple[Counter[str], list[str]]:
    """Judge every `each`-th byte of a folder; return the outcomes and the violations."""
    outcomes: Counter[str] = Counter()
    violations: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        sound = Path(name) / "sound"
        truth = await folders.build(sound, kind)
        for number, (file, at) in enumerate(places(sound)):
            if number < start or (number - start) % each:
                continue
            try:
                outcomes[await judge(sound, truth, file, at, 1 << number % 8)] += 1
            except Exception as error:  # noqa: BLE001  # any other is a violation as well
                violations.append(f"{kind} {file} byte {at}: {type(error).__name__}: {error}")
    return outcomes, violations


def main() -> int:
    """Print outcomes and violations per kind; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.flips", description=__doc__)
    parser.add_argument("--each", type=int, default=1, help="judge every N-th byte")
    parser.add_argument("--start", type=int, default=0, help="begin with this byte")
    parser.add_argument("--kind", choices=folders.KINDS, action="append")
    given = parser.parse_args()
    failed = 0
    for kind in given.kind or folders.KINDS:
        outcomes, violations = asyncio.run(run(kind, given.each, given.start))
        print(f"{kind}: {sum(outcomes.values()) + len(violations)} flips, {dict(outcomes)}")
        for violation in violations:
            print(f"  {violation}")
        failed += len(violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
