"""A host whose files can't be reached for a while: what needs them waits, all else goes on."""

from pathlib import Path

from structlog.testing import capture_logs

from replica.errors import StoreError
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.modes import bound_by_modes, mode
from tests.support.talk import Talk


def log_of(folder: Path) -> Path:
    return folder / "log"


async def test_a_request_that_finds_the_log_s_folder_denied_is_answered_once_it_is_back(
    served: ServedHost,
):
    with bound_by_modes():
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            await talk.ask("Name a colour.", tokens=3)
            with capture_logs() as lines, mode(log_of(served.folder / "host"), 0):
                await talk.say("Name another.")
                request = await talk.request(tokens=3)
                await until(lambda: any(line.get("reason") == StoreError.reason for line in lines))
                assert request not in talk.held.order.seal_of
            answer = await talk.answer(request)
            assert len(answer.token_ids) == 3
