"""A host whose files can't be reached for a while: what needs them waits, all else goes on."""

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from antiphon.cli.common import HostPresence, host_presence
from model_host.errors import CheckpointWriteFailed
from model_host.generation import JournalHead
from model_host.io.answers import host as host_module
from model_host.io.files.journal import Journal
from replica.errors import StoreError
from replica.io import AnswerOverdue
from replica.io.calls.host_calls import HostCalls
from replica.io.requests.answers import follow_answer
from replica.refusals import StoreReadOnly
from tests.model_host.io.served_host import ServedHost
from tests.model_host.io.test_archive_service import has_log
from tests.support.callers import until
from tests.support.modes import bound_by_modes, mode
from tests.support.talk import Talk


@pytest.fixture(autouse=True)
def bound() -> Iterator[None]:
    """Let modes bind all threads of a test: it comes before those of its other fixtures."""
    with bound_by_modes():
        yield


async def test_a_request_that_finds_the_log_s_folder_denied_is_answered_once_it_is_back(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        with capture_logs() as lines, mode(served.folder / "host" / "log", 0):
            await talk.say("Name another.")
            request = await talk.request(tokens=3)
            await until(lambda: any(line.get("reason") == StoreError.reason for line in lines))
            assert request not in talk.held.order.seal_of
        answer = await talk.answer(request)
        assert len(answer.token_ids) == 3


@pytest.mark.parametrize("number", [0, 0o400], ids=["closed", "listed alone"])
@pytest.mark.parametrize("name", ["derived", "derived/checkpoints", "derived/imports"])
async def test_a_host_starts_without_derived_files_that_are_denied(
    served: ServedHost, name: str, number: int
):
    derived = served.folder / "host" / "derived"
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        await served.kept(talk, host, 1)
    (derived / "imports" / "a.archive").touch()
    with capture_logs() as lines, mode(served.folder / "host" / name, number):
        async with served.host() as host:
            paths = {line.get("path", "") for line in lines}
            assert any(path.startswith(str(derived)) for path in paths)
            _, answer = await talk.ask("Name another.", tokens=3)
            assert len(answer.token_ids) == 3
    async with (
        served.host() as host,
        HostCalls(host.address, served.replica.key, host.key) as calls,
    ):
        await has_log(host, talk)
        archive = b"".join([part async for part in calls.export(talk.id)])
        await calls.import_([archive])


async def test_an_import_names_the_disk_of_the_host_where_that_is_read_only(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            imports = served.folder / "host" / "derived" / "imports"

            def refuse(*_given: object, **_named: object) -> NoReturn:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(imports))

            monkeypatch.setattr(tempfile, "mkstemp", refuse)  # as on a disk mounted read-only
            with (
                capture_logs() as lines,
                pytest.raises(CheckpointWriteFailed, match="file system failed"),
            ):
                await calls.import_([archive])
    (line,) = [line for line in lines if line["event"] == "archive not received"]
    assert line["path"] == str(imports)


@pytest.mark.parametrize(
    ("number", "error"), [(0o500, StoreReadOnly), (0o300, StoreError), (0o600, StoreError)]
)
async def test_a_host_does_not_start_on_a_folder_of_journals_that_is_denied(
    served: ServedHost, number: int, error: type[StoreError]
):
    async with served.host():
        pass
    denied = served.folder / "host" / "journal"
    with mode(denied, number), pytest.raises(error, match=str(denied)) as caught:
        async with served.host():
            pass
    assert type(caught.value) is error
    async with served.host():
        pass


async def test_a_request_that_finds_the_folder_of_journals_denied_is_said_to_be_resumed_once(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(host_module, "RETRY_AFTER_S", 0.01)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        tries, create = [], host.handler._journals.create

        def counted(head: JournalHead) -> Journal:
            tries.append(head)
            return create(head)

        monkeypatch.setattr(host.handler._journals, "create", counted)
        with capture_logs() as lines, mode(served.folder / "host" / "journal", 0o500):
            await talk.say("Name a colour.")
            request = await talk.request(tokens=3)
            await until(lambda: len(tries) > 5)
        assert len((await talk.answer(request)).token_ids) == 3
    assert [line["event"] for line in lines].count("resuming") == 1


async def test_a_wait_for_an_answer_that_can_t_be_written_ends_with_the_reason_of_the_host(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(host_module, "RETRY_AFTER_S", 3.0)  # it is asked between two tries
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        with mode(served.folder / "host" / "journal", 0o500):
            await talk.say("Name a colour.")
            request = await talk.request(tokens=3)
            following = follow_answer(talk.replica, talk.id, request, silence_max_s=0.5)
            with pytest.raises(AnswerOverdue) as caught:
                async for _ in following:
                    pass
        error = caught.value
        assert str(error).endswith("; its host can't go on with it [STORE_FAILED]")
        assert (error.reason, error.request) == (AnswerOverdue.reason, request)
        assert error.next_step.startswith("Ask the operator of its host to mend that. The request")
        assert len((await talk.answer(request)).token_ids) == 3


@pytest.mark.parametrize(("name", "number"), [("journal", 0o500), ("log", 0)])
async def test_a_command_says_what_keeps_a_host_from_an_answer(
    served: ServedHost, name: str, number: int
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        presence = HostPresence(talk.replica, talk.id)
        with mode(served.folder / "host" / name, number):
            await talk.say("Name another.")
            request = await talk.request(tokens=3)
            await until(lambda: "[STORE_FAILED]" in presence.delay(host.key))
        assert len((await talk.answer(request)).token_ids) == 3
        await until(lambda: presence.delay(host.key) == "")
        presence.note_news()
        assert presence.delay(host.key) == ""
        await presence.stop()


async def test_a_host_that_names_no_reason_is_asked_ever_less(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    """It is busy with other answers, and each question takes time from these."""
    asked, ask = list[float](), host_presence.hindrance

    async def counted(*what: Any) -> str:
        asked.append(time.monotonic())
        return await ask(*what)

    monkeypatch.setattr(host_presence, "SILENCE_S", 0.0)
    monkeypatch.setattr(host_presence, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(host_presence, "hindrance", counted)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        presence = HostPresence(talk.replica, talk.id)
        await until(lambda: presence.delay(host.key) == "" and len(asked) == 4)
        await presence.stop()
    pauses = [later - sooner for sooner, later in pairwise(asked)]
    assert all(pause > 0.1 * 2**number for number, pause in enumerate(pauses))


async def test_a_host_does_not_start_on_a_log_folder_that_is_denied(served: ServedHost):
    async with served.host():
        pass
    denied = served.folder / "host" / "log"
    with mode(denied, 0), pytest.raises(StoreError, match=str(denied)) as caught:
        async with served.host():
            pass
    assert caught.value.reason == StoreError.reason
