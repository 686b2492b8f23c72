"""A host with a full disk: it reports it, shows nothing it may lose, and resumes with free space.

Real hub, host, model and SQLite; the limits are SQLite's own, the kernel's, and /dev/full.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs

from model_host.generation.journal_records import TOKEN_BYTES
from model_host.io import server
from model_host.io.files import manifest_files
from model_host.io.server import HostServer
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, EntryId
from replica.io.calls.host_calls import HostCalls
from replica.io.driver.on_demand import ASK_TIMEOUT_S
from replica.link.events import EntryFailed, Event
from replica.log.body import Grant, Member, Role, Sampling
from replica.log.entry import public_key
from replica.log.kinds import Kind
from replica.refusals import ConversationUnknown, NotAllowed, StoreFull
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.files import file_size_limit, full_disk
from tests.support.talk import Talk, key_of, text_of

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
STORY = "Write a very long story about the sea."
PATIENCE_S = 30.0


def failures_at(host: HostServer) -> list[EntryFailed]:
    """Collect the failed entries of the host's own replica from now on."""
    found: list[EntryFailed] = []

    def note(event: Event) -> None:
        if isinstance(event, EntryFailed):
            found.append(event)

    host.replica.listen(note)
    return found


async def grant(talk: Talk, key: Ed25519PrivateKey) -> None:
    """Make a key a reader of a conversation."""
    heads = tuple(talk.held.log.membership_heads())
    body = Member(Grant(public_key(key), Role.READER))
    await talk.replica.append(talk.id, body, parents=heads)


async def assert_the_log_is_one(served: ServedHost, host: HostServer, talk: Talk) -> None:
    """Check that replica, hub and host hold the same log, on disk as in memory."""
    assert await served.replica.wait_synced(talk.id)
    assert await host.replica.wait_synced(talk.id)
    await served.replica.flush()
    await host.replica.flush()
    await served.hub.driver.performer.flush(talk.id)
    assert not talk.held.order.void
    assert talk.held.log.equivocations() == []
    for store in (served.replica.store, host.replica.store, served.hub.driver.store):
        assert {e.id for e in (await store.load(talk.id)).entries} == talk.held.log.entries.keys()


async def test_a_request_that_finds_the_hosts_log_full_is_answered_once_space_is_freed(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        failed = failures_at(host)
        async with full_disk(host.replica.store):
            await talk.say("Name another.")
            request = await talk.request(tokens=3)
            assert await host.replica.wait_for(lambda: bool(failed), PATIENCE_S)
            fault = failed[0].fault
            assert (fault.reason, fault.next_step) == (StoreFull.reason, StoreFull.next_step)
            assert request not in talk.held.order.seal_of
        answer = await talk.answer(request)
        assert len(answer.token_ids) == 3
        await assert_the_log_is_one(served, host, talk)


async def test_a_request_that_began_before_its_log_was_full_is_answered_once_space_is_freed(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    """The commit of its message wakes the host, which begins it before its own has failed."""
    writing, message, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()
    rendered = threading.Event()
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
        store, failed = host.replica.store, failures_at(host)
        append = store.append

        async def full(entries, **more):
            writing.set()
            if any(entry.header.kind == Kind.REQUEST for entry in entries):
                await refused.wait()
                raise StoreFull
            await message.wait()
            await append(entries, **more)

        monkeypatch.setattr(store, "append", full)
        busy = asyncio.create_task(host.handler.rendering.run(rendered.wait, b"another"))
        try:
            await talk.say("Name another.")
            await writing.wait()
            request = await talk.request(tokens=3)
            held = host.replica.shelf[talk.id]
            await until(lambda: request in held.order.unanswered)
            message.set()
            await until(lambda: host.host.running == 1)
            refused.set()
            await until(lambda: bool(failed) and host.replica.shelf.get(talk.id) is not held)
        finally:
            rendered.set()
        await busy
        await until(lambda: host.host.running == 0)
        monkeypatch.undo()
        answer = await talk.answer(request)
        assert len(answer.token_ids) == 3
        await assert_the_log_is_one(served, host, talk)


async def test_a_full_log_takes_the_place_of_checkpoints_and_is_shown_and_said_once(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Tell me of the sea. " * 20, tokens=3)
        await served.kept(talk, host, 1)
        failed = failures_at(host)
        with capture_logs() as logs:
            async with full_disk(host.replica.store):
                await talk.say("And on.")
                request = await talk.request(tokens=3)
                await until(lambda: host.host.unstored == {StoreFull.reason: 1})
                await until(lambda: not any(served.checkpoints.iterdir()))
                assert await host.replica.wait_for(lambda: len(failed) > 2, PATIENCE_S)
                async with HostCalls(host.address, served.replica.key, host.key) as calls:
                    sample = await calls.stats()
                assert sample.number("conversations_unstored", StoreFull.reason) == 1
                assert host.host.running == 0
            await talk.answer(request)
            await until(lambda: not host.host.unstored)
        lines = [line["event"] for line in logs if line["log_level"] != "info"]
        assert "conversations are not stored" in lines
        assert len(lines) == len({*lines})


async def test_members_alone_are_told_that_the_hosts_log_is_full(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        member, granted, stranger = key_of(31), key_of(32), key_of(33)
        await grant(talk, member)
        await talk.ask("Name a colour.", tokens=3)
        failed = failures_at(host)
        async with full_disk(host.replica.store):
            await grant(talk, granted)
            new = await Talk.begin(served.replica, host.key)
            await until(lambda: host.host.unstored == {StoreFull.reason: 2})
            assert {one.conversation for one in failed} == {talk.id, new.id}

            async def refusal(
                key: Ed25519PrivateKey, conversation: ConversationId
            ) -> AntiphonError:
                await until(lambda: conversation not in host.replica.shelf)  # it is tried again
                async with HostCalls(host.address, key, host.key) as calls:
                    with pytest.raises(AntiphonError) as caught:
                        warming = calls.warm(conversation, EntryId(conversation))
                        await asyncio.wait_for(warming, ASK_TIMEOUT_S / 2)  # nothing is waited for
                return caught.value

            for key, one in ((served.replica.key, talk), (member, talk), (served.replica.key, new)):
                full = await refusal(key, one.id)
                assert isinstance(full, StoreFull), full
                assert "disk of the host" in full.detail
            for key, one in ((stranger, talk), (stranger, new), (member, new), (granted, talk)):
                assert isinstance(await refusal(key, one.id), ConversationUnknown)
        await until(lambda: not host.host.unstored)
        async with HostCalls(host.address, granted, host.key) as calls:
            with pytest.raises(NotAllowed):
                await calls.warm(talk.id, EntryId(talk.id))


async def test_an_answer_that_finds_the_hosts_log_full_is_kept_and_logged_later(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        failed = failures_at(host)
        await talk.say(STORY)
        with held_after(6) as goes_on:
            request = await talk.request(tokens=16, sampling=SEEDED)
            assert await served.replica.wait_for(lambda: bool(talk.shown(request)), PATIENCE_S)
            async with full_disk(host.replica.store):
                goes_on.set()
                assert await host.replica.wait_for(lambda: bool(failed), PATIENCE_S)
                assert talk.held.order.answer(request) is None
        answer = await talk.answer(request)
        assert text_of(answer.parts) == talk.shown(request)
        await assert_the_log_is_one(served, host, talk)
        assert list(served.journals.iterdir()) == []


async def test_an_answer_that_finds_the_hub_full_is_delivered_later(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        failed = failures_at(host)
        await talk.say(STORY)
        with held_after(6) as goes_on:
            request = await talk.request(tokens=16, output_tokens_min=16, sampling=SEEDED)
            assert await served.replica.wait_for(lambda: bool(talk.shown(request)), PATIENCE_S)
            async with full_disk(served.hub.driver.store):
                goes_on.set()
                assert await host.replica.wait_for(lambda: bool(failed), PATIENCE_S)
                assert failed[0].fault.reason == StoreFull.reason
                assert talk.held.order.answer(request) is None
        answer = await talk.answer(request)
        assert len(answer.token_ids) == 16
        await assert_the_log_is_one(served, host, talk)


async def test_a_run_whose_journal_was_full_resumes_at_its_token(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say(STORY)
        with held_after(6) as goes_on:
            request = await talk.request(tokens=40, output_tokens_min=40, sampling=SEEDED)
            assert await served.replica.wait_for(lambda: bool(talk.shown(request)), PATIENCE_S)
            (journal,) = served.journals.iterdir()
            limit = journal.stat().st_size + 8 * TOKEN_BYTES + 5
            # Their lines would not be written to the captured output either.
            with capture_logs() as logs, file_size_limit(limit):
                goes_on.set()
                await until(lambda: any(line["event"] == "could not answer" for line in logs))
                assert journal.stat().st_size == limit  # the last token is torn
                assert talk.held.order.answer(request) is None
                stalled = [(request, StoreError.reason)]
                await until(lambda: stalled == [(v.request, v.failure) for v in host.host.views()])
        (reason,) = {line["reason"] for line in logs if line["event"] == "could not answer"}
        assert reason == StoreError.reason
        answer = await talk.answer(request)
        assert len(answer.token_ids) == 40
        assert text_of(answer.parts) == talk.shown(request)
        await assert_the_log_is_one(served, host, talk)
        again = await talk.answer(await talk.regenerate(request))
        assert again.token_ids == answer.token_ids


async def test_a_checkpoint_that_finds_a_full_disk_affects_nothing_else(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        folder = served.checkpoints / sha256(talk.id).hexdigest()
        folder.mkdir()
        (folder / "00000000.pack").symlink_to("/dev/full")
        request, answer = await talk.ask("Tell me of the sea. " * 20, tokens=4, sampling=SEEDED)
        assert len(answer.token_ids) == 4
        assert await host.thread.manifests(talk.id) == []
        assert host.thread.counts.writes.failed == 1
        assert list(folder.iterdir()) == []
        again = await talk.answer(await talk.regenerate(request))
        assert again.token_ids == answer.token_ids
        await served.kept(talk, host, 1)
    async with served.host() as host:
        restored = await talk.answer(await talk.regenerate(request))
        assert host.thread.counts.batch.restores == 1
    assert restored.token_ids == answer.token_ids


def derived_file(derived: Path) -> None:
    derived.write_text("in the way")


def derived_nowhere(derived: Path) -> None:
    derived.symlink_to("/nowhere/else")


def parts_are_files(derived: Path) -> None:
    derived.mkdir()
    for name in ("checkpoints", "imports"):
        (derived / name).write_text("in the way")


def left_is_a_folder(derived: Path) -> None:
    (derived / "imports" / "x.archive").mkdir(parents=True)


@pytest.mark.parametrize(
    "damage", [derived_file, derived_nowhere, parts_are_files, left_is_a_folder]
)
async def test_a_host_starts_and_answers_without_its_derived_files(
    served: ServedHost, damage: Callable[[Path], None]
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)
    derived = served.folder / "host" / "derived"
    shutil.rmtree(derived)
    damage(derived)
    with capture_logs() as logs:
        async with served.host() as host:
            _, answer = await talk.ask("Name another.", tokens=3)
            assert len(answer.token_ids) == 3
            await until(
                lambda: host.thread.counts.writes.failed + host.thread.counts.writes.written
            )
            async with HostCalls(host.address, served.replica.key, host.key) as calls:
                await calls.warm(talk.id, EntryId(talk.id))
    warned = [line["path"] for line in logs if "path" in line and line["log_level"] == "warning"]
    assert warned
    assert all(Path(path).is_relative_to(derived) for path in warned)


async def test_a_host_that_starts_on_a_full_disk_drops_checkpoints_before_it_opens_its_store(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Tell me of the sea. " * 20, tokens=3)
        await served.kept(talk, host, 1)
    monkeypatch.setattr(manifest_files, "spare_at", lambda _folder: -1)
    held = []

    def look(*_arguments: object) -> None:
        held.extend(served.checkpoints.iterdir())
        raise StoreFull

    assert [*served.checkpoints.iterdir()]
    monkeypatch.setattr(server, "_opening", look)
    with pytest.raises(StoreFull):
        async with served.host():
            pass
    assert held == []
