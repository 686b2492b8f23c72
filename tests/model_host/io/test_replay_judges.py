"""Who judges the answers of profiles that a host does not offer any more."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from model_host.io.config import HostConfig
from model_host.io.server import start as start_host
from replica.conversation import Cause, Outcome
from replica.ids import Digest
from replica.io.driver.replica import Replica
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.io.replaying import replay
from tests.model_host.io.two_profiles import KV_BYTES, write_model
from tests.support.talk import Talk, key_of

pytestmark = pytest.mark.usefixtures("own_cache")


class Machine:
    """A hub, and a host that offers one model in two numerics."""

    def __init__(self, folder: Path, hub: str) -> None:
        self.folder = folder
        self.hub = hub
        self.model = str(write_model(folder / "model"))

    @asynccontextmanager
    async def host(self, context_tokens: int, *numerics: str):
        """Run the host; another limit of a context makes other profiles of the same weights."""
        config = HostConfig(
            data_dir=self.folder / "host",
            hub=self.hub,
            model=tuple(f"{self.model}@{each}" for each in numerics),
            kv_bytes_max=KV_BYTES,
            context_tokens=context_tokens,
        )
        async with start_host(config) as host:
            await host.replica.wait_for(lambda: host.replica.hub.is_linked, 30)
            yield host


@pytest.mark.parametrize("last", [0, 1])
async def test_old_answers_are_judged_in_their_numerics_class_whichever_profile_answered_last(
    last: int, tmp_path: Path
):
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    machine = Machine(tmp_path, hub.address)
    try:
        async with Replica.open(tmp_path / "me" / "log.db", key_of(1), hub.address) as replica:
            async with machine.host(200, "bf16", "fp32") as host:
                await replica.wait_for(lambda: replica.hub.is_linked, 30)
                talk = await Talk.begin(replica, host.key)
                old = [
                    (await talk.ask("hello", tokens=4, profile=offer.profile.digest))[0]
                    for offer in host.profiles.offers.all
                ]
            async with machine.host(190, "bf16", "fp32") as host:
                offers = host.profiles.offers.all
                await talk.ask("hello", tokens=4, profile=offers[last].profile.digest)
                got = await replay(talk, host)
    finally:
        await hub.stop()
    found = [got.of(talk, request) for request in old]
    assert [(f.outcome, f.cause, f.checked_tokens) for f in found] == [
        (Outcome.ACCEPTED, Cause.NONE, 4)
    ] * 2
    judges = {Digest(each.profile) for each in (got.receipt, *got.receipt.further)}
    assert judges == {offer.profile.digest for offer in offers}
