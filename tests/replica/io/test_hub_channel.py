"""The connection to a hub that is away."""

import socket

import pytest

from replica.io.hub_channel import open_channel
from replica.refusals import HubUnreachable


async def test_a_hub_that_is_away_is_said_in_the_words_of_the_system() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{taken.getsockname()[1]}"
        with pytest.raises(HubUnreachable) as away:
            await open_channel(address)
    assert away.value.detail == f"{address}: connection refused"


async def test_a_name_that_no_machine_has_is_said_without_a_number() -> None:
    with pytest.raises(HubUnreachable) as away:
        await open_channel("no-such-machine.invalid:7411")
    assert "Errno" not in away.value.detail
