"""Lets a host replay recorded conversations, and compares what it finds."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from antiphon.conformance.cases import Check, NotApplicable, Violation, check, equal
from antiphon.conformance.io.calls import PATIENCE_S
from antiphon.conformance.io.hosts import host_of, service_of
from antiphon.conformance.io.member import Member
from antiphon.conformance.io.reconciling import Reconciling
from antiphon.conformance.suites.recording import Json, Recording
from replica.conversation import (
    Author,
    Cause,
    Conversation,
    Finding,
    Outcome,
    Receipt,
    ReplayMode,
)
from replica.errors import AntiphonError
from replica.ids import SALT_BYTES, EntryId, PublicKey
from replica.io import HostCalls, now_ms
from replica.log import Grant, Kind, Role
from replica.log import Member as MemberBody

FOLDER = Path(__file__).parents[2] / "suites" / "replay"
RETRY_S = 0.05


def recorded_replays() -> Iterator[Recording]:
    """Yield the recordings of the suite."""
    for path in sorted(FOLDER.glob("*.json")):
        yield Recording(json.loads(path.read_text()))


@dataclass(slots=True)
class Replayed:
    """All that a replay yielded."""

    receipt: Receipt
    findings: dict[EntryId, Finding] = field(default_factory=dict)


def checks_of(recordings: Iterable[Recording]) -> Iterator[Check["Replayer"]]:
    """Yield the cases: each recording is verified, and rebuilt."""
    for one in recordings:
        for mode in (ReplayMode.VERIFY, ReplayMode.REBUILD):
            name = f"replay/{one.name}/{mode.name.lower()}"
            yield Check(name, one.requirements, one.title, partial(_play, one, mode))


class Replayer:
    """Asks the host of a hub."""

    def __init__(self, address: str, host: PublicKey | None = None) -> None:
        """Ask `host`, or the first that the hub at `address` names."""
        self._address = address
        self._host = host

    async def play(self, recording: Recording, mode: ReplayMode) -> None:
        """Give the host the recording, let it replay, and judge what it states."""
        async with self._given(recording) as (held, calls):
            profile = (await calls.describe()).profiles[0]
            for name in ("tokenizer_digest", "template_digest", "render_recipe_digest"):
                if getattr(profile, name).hex() != recording.content[name]:
                    raise NotApplicable(f"the host's default profile has another {name}")
            is_same = profile.numerics_class.hex() == recording.content["numerics_class"]
            found = await _replayed(calls, held, mode)
            for answer in recording.content["answers"]:
                _judge(recording, answer, found, is_same=is_same and profile.bitwise)

    @asynccontextmanager
    async def _given(self, recording: Recording) -> AsyncIterator[tuple[Conversation, HostCalls]]:
        """Bring the conversation to the hub, with a grant for the host."""
        owner = recording.key("ada")
        async with Member.join(self._address, owner) as member, member.linked() as link:
            found = await host_of(member, self._host)
            held = recording.held(recording.entries)
            # The hub may have the recording already, with grants of earlier runs.
            if not await Reconciling(link, held, recording.label).run():
                raise Violation("the hub never stated the digest of the recording")
            check_recorded(held, recording)
            if Role.HOST not in held.log.membership.roles.get(found.key, ()):
                _grant(held, owner, found.key)
                check(await Reconciling(link, held, recording.label).run(), "no equal digest")
            async with HostCalls(service_of(found), owner, found.key) as calls:
                yield held, calls


def check_recorded(held: Conversation, recording: Recording) -> None:
    """Raise NotApplicable where the hub holds what the recording's keys wrote in another one."""
    keys = {entry.header.author for entry in recording.entries.values()}
    recorded = {entry.id for entry in recording.entries.values()}
    for entry in held.log.entries.values():
        is_grant = entry.header.kind == Kind.MEMBER  # of an earlier run
        if entry.header.author in keys and entry.id not in recorded and not is_grant:
            raise NotApplicable("the hub holds another version of the recording: use an empty hub")


def _play(recording: Recording, mode: ReplayMode, replayer: Replayer) -> Any:
    return replayer.play(recording, mode)


def _grant(held: Conversation, owner: Any, host: PublicKey) -> None:
    """Let the owner grant HOST, in an epoch of its own."""
    epoch = int.from_bytes(os.urandom(6), "little")
    body = MemberBody(Grant(host, Role.HOST))
    salt, heads = os.urandom(SALT_BYTES), held.log.membership_heads()
    held.admit(Author(owner, epoch).write(held, body, parents=heads, salt=salt, time_ms=now_ms()))


async def _replayed(calls: HostCalls, held: Conversation, mode: ReplayMode) -> Replayed:
    """Replay until the host holds the whole conversation. Raises AntiphonError, Violation."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            found = await _once(calls, held, mode)
        except AntiphonError as error:
            if not error.retryable and error.reason != "CONVERSATION_NOT_FOUND":
                raise
        else:
            if found.receipt.log_digest == held.log.digest:
                return found
        await asyncio.sleep(RETRY_S)
    raise Violation("the host never replayed the whole conversation")


async def _once(calls: HostCalls, held: Conversation, mode: ReplayMode) -> Replayed:
    findings: dict[EntryId, Finding] = {}
    async for event in calls.replay(held.id, mode):
        if isinstance(event, Finding):
            check(event.answer not in findings, "two findings about one answer")
            findings[event.answer] = event
        elif isinstance(event, Receipt):
            return Replayed(event, findings)
    raise Violation("the replay ends without a receipt")


def _judge(recording: Recording, answer: Json, found: Replayed, *, is_same: bool) -> None:
    label = answer["answer"]
    finding = found.findings.get(recording.entries[label].id)
    if finding is None:
        raise Violation(f"no finding about {label}")
    differs = f"{Cause(finding.cause).name}: {finding.detail}"
    equal(finding.render_digest.hex(), answer["render_digest"], f"the render digest of {label}")
    equal(finding.prompt_tokens, answer["prompt_tokens"], f"the prompt tokens of {label}")
    equal(finding.output_tokens, len(answer["token_ids"]), f"the output tokens of {label}")
    check(finding.outcome != Outcome.DIFFERS, f"{label} differs ({differs})")
    if is_same:
        check(finding.outcome == Outcome.ACCEPTED, f"{label} is undecided ({differs})")
    elif finding.outcome == Outcome.UNDECIDED:
        known = (Cause.OTHER_NUMERICS, Cause.NOT_BITWISE, Cause.OTHER_WEIGHTS)
        check(finding.cause in known, f"{label} is undecided ({differs})")
