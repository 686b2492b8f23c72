"""Support for the document tests: a writer of tracks, and structs made by hand."""

import hashlib
import random
from collections.abc import Callable, Iterable
from typing import Any

from replica.document.lib0 import text
from replica.document.projection import Document, Edit, Projection, Update, entry_client, project
from replica.document.yjs import (
    EMPTY_UPDATE,
    Content,
    DecodedUpdate,
    Deletion,
    Struct,
    StructId,
    encode_update,
)
from replica.ids import EntryId, Lane, PublicKey, Track
from tests.replica.document.naive_document import naive_document

SEAL = EntryId(hashlib.sha256(b"seal").digest())


def lane(author: int) -> Lane:
    return Lane(PublicKey(bytes([author]) * 32), 7, Track.DOCUMENT)


class TrackWriter:
    """A document track with correct lanes, seqs and lamports, written entry by entry."""

    def __init__(self) -> None:
        self.entries: dict[EntryId, Update] = {}
        self.last: dict[Lane, EntryId] = {}
        genesis = Lane(PublicKey(bytes(32)), 0, Track.ALL)
        self.genesis = self.add(EMPTY_UPDATE, author=genesis, parents=())

    def add(
        self,
        data: bytes,
        *,
        author: int | Lane = 1,
        parents: Iterable[Update],
        prev: Update | None = None,
        entry: bytes | None = None,
    ) -> Update:
        """Append one entry; `prev` other than the lane's last makes the lane fork."""
        where = author if isinstance(author, Lane) else lane(author)
        before = prev.id if prev else self.last.get(where)
        follows = [parent.id for parent in parents]
        lamport = 1 + max(
            (self.entries[name].lamport for name in (*follows, *([before] if before else []))),
            default=-1,
        )
        name = entry or hashlib.sha256(b"%d" % len(self.entries) + data).digest()
        update = Update(
            EntryId(name),
            where,
            self.entries[before].seq + 1 if before else 0,
            before,
            tuple(sorted(follows)),
            lamport,
            data,
        )
        self.entries[update.id] = update
        self.last[where] = update.id
        return update

    def __call__(self) -> list[Update]:
        return list(self.entries.values())


def put(
    key: str, value: str | None, *, at: int = 0, by: int, origin: StructId | None = None
) -> Struct:
    """Return one struct that sets meta[key], or for None has it deleted."""
    where: dict[str, Any] = {"root": "meta", "key": key} if origin is None else {"origin": origin}
    if value is None:
        return Struct(StructId(by, at), 1, Content.DELETED, b"\x01", **where)
    return Struct(StructId(by, at), 1, Content.ANY, b"\x01\x77" + text(value), **where)


def update_of(*structs: Struct, deletions: Iterable[Deletion] = ()) -> bytes:
    return encode_update(DecodedUpdate(structs, tuple(deletions)))


def name_of(update: Update, clock: int = 0) -> StructId:
    """Return the name of one of `update`'s structs for its descendants."""
    return StructId(entry_client(update.id), clock)


def edited(document: Document, author: int, write: Callable[[Edit], None]) -> bytes:
    edit = document.edit(lane(author))
    write(edit)
    return edit.update()


def meta(updates: Iterable[Update]) -> dict[str, Any]:
    return dict(project(updates).meta)


def shuffled_causally(updates: list[Update], rng: random.Random) -> list[Update]:
    left = {update.id: update for update in updates}
    order = []
    while left:
        ready = [u for u in left.values() if left.keys().isdisjoint(u.follows)]
        order.append(left.pop(rng.choice(ready).id))
    return order


def assert_all_agree(updates: list[Update], rng: random.Random, rounds: int = 3) -> Projection:
    """Check `project` in any order and `Document` in any causal order against the twin."""
    expected = project(updates)
    document, void = naive_document(updates)
    assert (expected.meta, set(expected.void)) == (document["meta"], void)
    assert all(
        expected.annotations[key[:64]][key[65:]] == value
        for key, value in document["annotations"].items()
    )
    for _ in range(rounds):
        assert project(rng.sample(updates, len(updates))) == expected
        live = Document()
        for update in shuffled_causally(updates, rng):
            live.receive(update)
        assert live.projection == expected
    return expected
