"""The Prometheus endpoint of a real hub, and what it counts."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replica.ids import ConversationId, EntryId
from replica.io.calls.hub_calls import HubCalls
from replica.io.driver.replica import Replica
from replica.log.body import Genesis, Message, Speaker, Text
from replica.refusals import ConversationUnknown, RateLimited
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from syncd.measures import HubCounters
from tests.replica.io.serving.test_metrics_server import ask
from tests.support.talk import key_of

SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubServer]:
    made = await start(
        HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0", metrics="0", links_per_key_max=1)
    )
    yield made
    await made.stop()


async def scraped(hub: HubServer) -> dict[tuple[str, str], float]:
    """Return the samples of a scrape, by name and the value of the label."""
    assert hub.metrics is not None
    _, body = await ask(hub.metrics.address, SCRAPE)
    return {
        (sample.name.removeprefix("antiphon_hub_"), next(iter(sample.labels.values()), "")):
            sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }  # fmt: skip


async def test_appends_bytes_links_and_refusals_are_counted(hub: HubServer, tmp_path: Path):
    async with Replica.open(tmp_path / "r" / "log.db", key_of(1), hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        said = Message(Speaker.USER, (Text("x" * 1000),))
        await replica.append(conversation, said, parents=(conversation,))
        assert await replica.wait_synced(conversation, 10)
        found = await scraped(hub)
        assert found["entries_appended_total", ""] == 2
        assert found["append_seconds_count", ""] >= 1
        assert found["links", ""] == found["conversations", ""] == 1
        assert found["received_bytes_total", ""] > 1000
        assert found["sent_bytes_total", ""] > 0
        before = found.get(("faults_total", ConversationUnknown.reason), 0)
        calls = HubCalls(hub.address, key_of(1), replica.store)
        with pytest.raises(ConversationUnknown):
            await calls.fetch(ConversationId(b"?" * 32), [EntryId(b"?" * 32)])
        with pytest.raises(RateLimited):  # the replica's link is the only one allowed
            async for _ in calls.watch(conversation, ()):
                pass
        await calls.close()
    found = await scraped(hub)
    assert found["faults_total", ConversationUnknown.reason] == before + 1
    assert found["faults_total", RateLimited.reason] == 1
    assert found["quota_refusals_total", RateLimited.reason] == 1


async def test_a_hub_without_the_flag_serves_nothing(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    assert hub.metrics is None
    await hub.stop()


def test_counting_an_append_costs_microseconds():
    """An append takes some 200 microseconds; counting it must not show."""
    counters, began = HubCounters(), time.process_time()
    for number in range(20_000):
        counters.bytes_in += 100
        counters.note_written(None, number)
        counters.append_s.observe(0.001 * (number % 7))
    assert (time.process_time() - began) / 20_000 < 20e-6
