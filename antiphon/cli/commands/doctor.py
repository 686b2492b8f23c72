"""`antiphon doctor`: check the installation; one line per check, with the next step."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.text import Text

from antiphon.cli.commands.verify import without_copy
from antiphon.cli.common import NotInPlace, Session, command, served_by, without_numerics
from antiphon.cli.views import Output, brief, counted, step_of, wrapped
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, short
from replica.io import HostCalls, Replica, error_of, means_away, open_channel, python
from replica.link import LinkedHost, profile_names
from replica.refusals import HubUnreachable, NoHost, StoreLocked

PYTHON_MIN = (3, 11)
DISK_WARN_BYTES = 2 * 1024**3
DISK_FAIL_BYTES = 200 * 1024**2
CALL_TIMEOUT_S = 3.0
REASON_MAX = 160
"""Most characters of what Python says about a package."""
INDENT = 14
"""Column at which details begin."""
COLORS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: ok, warn or fail, the details, and the next step."""

    verdict: str
    check: str
    detail: str
    next_step: str = ""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "doctor", rich_help_panel="Run")
    async def doctor(session: Session) -> None:
        """Check the installation, this replica, the hub and the host; exit 1 on a failure."""
        failures = 0
        async for finding in _findings(session):
            failures += finding.verdict == "fail"
            _report(session.out, finding)
        if failures:
            raise NotInPlace(f"{counted(failures, 'check', 'checks')} failed; see above")


def _report(out: Output, finding: Finding) -> None:
    if out.as_json:
        out.emit(asdict(finding))
        return
    color = COLORS[finding.verdict]
    width = out.data.width - INDENT if out.data.is_terminal else 0
    detail, *rest = wrapped(finding.detail, width)
    line = Text.assemble((f"{finding.verdict:<5}", color), f"{finding.check:<9}", detail)
    out.show(line)
    for part in rest:
        out.show(" " * INDENT + part)
    for part in wrapped(finding.next_step, width) if finding.next_step else []:
        out.show(Text(" " * INDENT + part, style="dim"))


async def _findings(session: Session) -> AsyncIterator[Finding]:
    yield _python()
    yield _torch()
    yield _folder(session)
    yield _key(session)
    yield _disk(session)
    yield _model(session)
    async for finding in _store_hub_and_host(session):
        yield finding


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("fail", "python", version, "install Python 3.11 or newer")
    return Finding("ok", "python", version)


@cache  # an installation stays as it is while a process runs
def _torch() -> Finding:
    """Import torch in a separate process, since this takes seconds and memory."""
    code = "import torch; print(torch.__version__)"
    step = "pip install 'antiphon[host]'    needed only to run a model host"
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter
            python("-c", code), capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("warn", "torch", "importing it took over 60 s", step)
    if "No module named 'torch'" in done.stderr:
        return Finding("warn", "torch", "not installed", step)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Finding("warn", "torch", f"can't be imported: {reason[:REASON_MAX]}", step)
    return Finding("ok", "torch", done.stdout.strip())


def _folder(session: Session) -> Finding:
    folder = session.settings.data_dir.expanduser()
    if not folder.exists():
        return Finding("ok", "folder", f"{folder} (created when first needed)")
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("fail", "folder", f"{folder} is not writable", f"chmod -R u+rwX {folder}")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding(
            "warn", "folder", f"{folder} is accessible to other users", f"chmod 700 {folder}"
        )
    return Finding("ok", "folder", str(folder))


def _key(session: Session) -> Finding:
    if not session.settings.key_path.exists() and not session.settings.store_path.is_file():
        return Finding("ok", "key", "none yet (created when first needed)")
    try:
        public = session.public()
    except AntiphonError as error:
        return Finding("fail", "key", f"{error.detail} [{error.reason}]", error.next_step)
    return Finding("ok", "key", public.hex())


def _disk(session: Session) -> Finding:
    folder = session.settings.data_dir.expanduser()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    words = f"{free / 1e9:.1f} GB free"
    if free < DISK_FAIL_BYTES:
        return Finding("fail", "disk", words, "free some space: appends will be refused soon")
    if free < DISK_WARN_BYTES:
        return Finding("warn", "disk", words, "free some space: checkpoints are large")
    return Finding("ok", "disk", words)


def _model(session: Session) -> Finding:
    name = without_numerics(session.settings.model)
    argv = python("-m", "model_host", "list", "--json")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        models = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    except (subprocess.TimeoutExpired, ValueError):
        models = []
    if not models:
        return Finding("warn", "model", "the list of models can't be read", "antiphon model list")
    for model in models:
        if model.get("name") == name:
            return _known_model(name, model)
    path = Path(name).expanduser()
    if path.exists():
        if not os.access(path, os.R_OK):
            return Finding("fail", "model", f"{name} can't be read", "Make it readable.")
        return Finding("ok", "model", f"{name} (a path)")
    detail = f"'{name}' is neither a known model nor a file or folder"
    return Finding("warn", "model", detail, "`antiphon model list` shows the known ones.")


def _known_model(name: str, described: dict[str, Any]) -> Finding:
    """Return the finding about a model that is known by name; its digest is checked at a start."""
    problem = described.get("problem")
    if problem is None:
        return Finding("ok", "model", f"{name}  {described.get('path', '')}")
    step = "`antiphon model pull` fetches it (98 MB)."
    if problem == "not fetched":
        return Finding("warn", "model", f"{name} is not downloaded yet", step)
    step = "Make the file readable, or delete it and run `antiphon model pull`."
    return Finding("fail", "model", f"{name}: {problem}", step)


async def _store_hub_and_host(session: Session) -> AsyncIterator[Finding]:
    try:
        async with session.replica() as replica:
            held = len(await replica.store.conversations())
            words = counted(held, "conversation", "conversations")
            through = served_by(replica)
            how = f"is open {through}" if through is not None else "opens"
            yield Finding("ok", "store", f"{how}, {words}")
            if replica.store.lost_count:
                lost = counted(replica.store.lost_count, "entry", "entries")
                yield Finding("fail", "store", f"lost the last {lost} written", "antiphon repair")
            async for finding in _quarantine(replica):
                yield finding
            yield await _hub(session, replica)
            async for finding in _hosts(session, replica):
                yield finding
            async for finding in _untaken(session, replica):
                yield finding
    except StoreLocked as error:
        step = "end that process to check the store; the hub is checked without a key"
        yield Finding("warn", "store", error.detail, step)
        yield await _hub_health(session)
    except AntiphonError as error:
        yield Finding("fail", "store", f"{error.detail} [{error.reason}]", error.next_step)


async def _quarantine(replica: Replica) -> AsyncIterator[Finding]:
    rows = await replica.store.quarantined()
    for conversation in dict.fromkeys(ConversationId(row.conversation) for row in rows):
        try:
            entries = (await replica.store.load(conversation)).entries
        except StoreError as error:  # the hub and the hosts are looked at all the same
            detail = f"{short(conversation)} can't be read: {brief(error)}"
            yield Finding("fail", "store", detail, step_of(error))
            continue
        held = (row for row in rows if row.conversation == conversation)
        for row in without_copy(held, entries):
            detail = f"{short(row.id)} is in quarantine: {row.why}"
            yield Finding("warn", "store", detail, "antiphon repair")


async def _hub(session: Session, replica: Replica) -> Finding:
    await replica.wait_for(lambda: replica.hub.is_tried, session.settings.sync_timeout_s)
    if replica.hub.is_linked:
        return Finding("ok", "hub", f"{session.settings.hub}  key {short(replica.hub.key or b'')}")
    error = replica.hub.last_error
    address = session.settings.hub
    if error is None:
        return Finding("warn", "hub", f"{address} is away: no answer in time", "antiphon up")
    if means_away(error):
        step = "`antiphon up` starts one; until then you work offline."
        return Finding("warn", "hub", f"{address} is away: {brief(error)}", step)
    verdict = "warn" if error.retryable else "fail"
    return Finding(verdict, "hub", f"{address} is not linked: {brief(error)}", step_of(error))


async def _untaken(session: Session, replica: Replica) -> AsyncIterator[Finding]:
    """Check that the linked hub takes what it has not acknowledged yet."""
    if not replica.hub.is_linked:
        return
    waiting = []
    for stored in await replica.store.conversations():
        held = await replica.load(stored.conversation)
        if replica.hub.unsynced(held.id) and held.is_member(replica.public):
            waiting.append(held.id)
    found = await asyncio.gather(*(_refusal(session, replica, one) for one in waiting))
    for conversation, refusal in zip(waiting, found, strict=True):
        if refusal is not None:
            count = counted(replica.hub.unsynced(conversation), "entry", "entries")
            words = f"does not take {count} of {short(conversation)}: {brief(refusal)}"
            yield Finding("fail", "hub", words, refusal.next_step)


async def _refusal(
    session: Session, replica: Replica, conversation: ConversationId
) -> AntiphonError | None:
    """Return why the hub does not take the entries of a conversation; None if it does."""
    try:
        await session.sync(replica, conversation)
    except AntiphonError as error:
        return error
    fault = replica.hub.refusal(conversation)
    is_left = fault is not None and replica.hub.unsynced(conversation)
    return error_of(fault) if fault is not None and is_left else None


async def _hub_health(session: Session) -> Finding:
    address = session.settings.hub
    try:
        opened = await open_channel(address)
    except HubUnreachable as error:
        return Finding("warn", "hub", error.detail, "antiphon up")
    async with opened.grpc as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            return Finding("warn", "hub", f"{address}: {error.details()}", "antiphon up")
    return Finding("ok", "hub", f"{address} serves")


async def _hosts(session: Session, replica: Replica) -> AsyncIterator[Finding]:
    """Check the hosts that a conversation may be granted to; only count the others."""
    if not replica.hub.is_linked:
        return
    pinned = session.settings.host_key
    ours = [host for host in replica.hub.hosts if host.vouched or host.key == pinned]
    for host in ours:
        yield await _host(replica, host)
    others = len(replica.hub.hosts) - len(ours)
    if pinned is not None and all(host.key != pinned for host in ours):
        detail = f"the settings pin {short(pinned)}, which the hub does not name"
        yield Finding("warn", "host", detail, "start it, or remove it from the settings")
    elif not replica.hub.hosts:
        yield Finding("warn", "host", "none is linked to the hub", "antiphon up    starts one")
    elif not ours:
        detail = f"the hub vouches for none of the {others} linked to it"
        yield Finding("warn", "host", detail, NoHost.next_step)
    if ours and others:
        yield Finding("ok", "host", f"{others} more linked, not vouched for and not checked")


async def _host(replica: Replica, host: LinkedHost) -> Finding:
    info = host.info
    names = ", ".join(profile_names(info.profiles))
    words = f"{short(info.key)}  {names}  {'vouched for' if host.vouched else 'pinned'}"
    if not info.has_service:
        return Finding("ok", "host", f"{words}  linked, answers no questions")
    try:
        async with HostCalls(info.address, replica.key, info.key) as calls:
            described = await calls.describe()
    except AntiphonError as error:
        step = "read its log, then restart it with antiphon up"
        return Finding("fail", "host", f"{words}  {error.detail} [{error.reason}]", step)
    bitwise = all(profile.bitwise for profile in described.profiles if profile.loaded)
    detail = f"{words}  {info.address}  {'bitwise' if bitwise else 'not bitwise'}"
    if bitwise:
        return Finding("ok", "host", detail)
    return Finding("warn", "host", detail, "its self-test failed: restored state may differ")
