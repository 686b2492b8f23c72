"""A host that offers two tiny models as profiles."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.io.driver.replica import Replica
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.engine import tiny_folder
from tests.support.talk import Talk, key_of

CHAT = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
KV_BYTES = 64 * 1024 * 1024


def write_model(folder: Path, change: float = 1.0) -> Path:
    """Write a model folder with a chat template; `change` scales the final norm."""
    tiny_folder.write(folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    change_weights(folder, change)
    return folder


def change_weights(folder: Path, change: float) -> None:
    path = folder / "model.safetensors"
    tensors: dict[str, torch.Tensor] = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * change
    save_file(tensors, path)


class TwoProfiles:
    """A host with the profiles `first` and `second`, and a conversation with it."""

    def __init__(
        self, folder: Path, hub: str, host: HostServer, replica: Replica, talk: Talk
    ) -> None:
        self.folder = folder
        self.hub = hub
        self.host = host
        self.replica = replica
        self.talk = talk
        self.first, self.second = host.profiles.offers.all

    @property
    def loaded(self) -> list[str]:
        """The names of the loaded profiles."""
        offers = self.host.profiles.offers.all
        return [o.profile.name for o in offers if self.host.profiles.loaded(o) is not None]


@asynccontextmanager
async def two_profiles(folder: Path, **settings: int) -> AsyncIterator[TwoProfiles]:
    """Run a hub, a reader and the host; `settings` are the host's."""
    models = tuple(
        str(write_model(folder / name, change))
        for name, change in (("first", 1.0), ("second", 1.5))
    )
    hub = await start_hub(HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0"))
    config = HostConfig(
        data_dir=folder / "host",
        hub=hub.address,
        model=models,
        numerics="fp32",
        **{"kv_bytes_max": KV_BYTES} | settings,
    )
    path = folder / "replica" / "log.db"
    try:
        async with start_host(config) as host:
            await host.replica.wait_for(lambda: host.replica.hub.is_linked, 30)
            async with Replica.open(path, key_of(1), hub.address) as replica:
                await replica.wait_for(lambda: replica.hub.is_linked, 30)
                talk = await Talk.begin(replica, host.key)
                yield TwoProfiles(folder, hub.address, host, replica, talk)
    finally:
        await hub.stop()
