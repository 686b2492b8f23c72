"""Bodies that are fetched from a hub, and what a hub sends beside them."""

from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.v1 import sync_pb2 as pb
from replica.io.driver.fetch import fetch_missing
from replica.io.driver.replica import Replica
from replica.io.serving import rpc
from replica.link.messages import Entries, Open
from replica.log import Entry, entry_to_pb
from replica.refusals import BodyDigestMismatch, HubUnreachable
from tests.replica.io.driver.test_lying_hub import LyingHub, lying
from tests.support.callers import until
from tests.support.writers import Writer, said

ADA = Writer(1)


def sent(*entries: Entry) -> pb.FetchResponse:
    return pb.FetchResponse(entries=map(entry_to_pb, entries))


async def test_a_fetch_brings_what_was_asked_for_and_stores_all_that_it_admits(
    tmp_path: Path,
) -> None:
    """An entry that is in memory alone would be the parent of entries that are stored."""
    genesis = ADA.genesis()
    id_ = genesis.conversation
    one = ADA.write(id_, said("one"), parents=[genesis])
    two = ADA.write(id_, said("two"), parents=[one])
    unasked = ADA.write(id_, said("three"), parents=[two])
    lost = ADA.write(id_, said("never sent"), parents=[unasked])
    pending = ADA.write(id_, said("five"), parents=[lost])
    bare = [replace(entry, body=None) for entry in (one, two)]
    async with lying(LyingHub()) as hub:
        hub.lie = lambda m: [Entries(id_, (genesis, *bare))] if isinstance(m, Open) else []
        wrong = replace(two, body=one.body)
        hub.fetched = (sent(unasked, pending), sent(wrong, one), sent(one, two))
        async with Replica.open(tmp_path / "log.db", ADA.key, hub.address) as replica:
            await replica.follow(id_)
            await until(lambda: id_ in replica.shelf and len(replica.shelf[id_].log) == 3)
            with pytest.raises(BodyDigestMismatch):
                await fetch_missing(replica, id_)
            log = replica.shelf[id_].log
            assert (set(log.entries), list(log.pending)) == ({genesis.id, one.id, two.id}, [])
            stored = {entry.id: entry.body for entry in (await replica.store.load(id_)).entries}
            assert stored == {entry.id: entry.body for entry in log.entries.values()}
            assert list(log.bodyless) == [two.id]
            hub.fetched = (sent(two),)
            assert await fetch_missing(replica, id_) == 1


async def test_bodies_that_came_are_stored_though_the_hub_sends_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Fetch had 20 s in all, so that many bodies over a slow line never came."""
    genesis = ADA.genesis()
    id_ = genesis.conversation
    one = ADA.write(id_, said("one"), parents=[genesis])
    two = ADA.write(id_, said("two"), parents=[one])
    bare = [replace(entry, body=None) for entry in (one, two)]
    async with lying(LyingHub()) as hub:
        hub.lie = lambda m: [Entries(id_, (genesis, *bare))] if isinstance(m, Open) else []
        hub.fetched, hub.fetch_ends = (sent(one),), False
        async with Replica.open(tmp_path / "log.db", ADA.key, hub.address) as replica:
            await replica.follow(id_)
            await until(lambda: id_ in replica.shelf and len(replica.shelf[id_].log) == 3)
            monkeypatch.setattr(rpc, "CALL_TIMEOUT_S", 1.0)
            with pytest.raises(HubUnreachable, match="nothing that was asked for came"):
                await fetch_missing(replica, id_)
            stored = {entry.id: entry.body for entry in (await replica.store.load(id_)).entries}
            assert stored[one.id] == one.body
            hub.fetched, hub.fetch_ends = (sent(two),), True
            assert await fetch_missing(replica, id_) == 1
