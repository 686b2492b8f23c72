"""Plays recorded divergences against a hub, with one raw link for each replica."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from antiphon.conformance.cases import Check, Violation, check, equal
from antiphon.conformance.io.member import KeptLink, Member, Overdue
from antiphon.conformance.io.reconciling import DIFFERENT, NOT_FOUND, Reconciling
from antiphon.conformance.suites.divergences import divergences
from antiphon.conformance.suites.recording import Json, Recording
from antiphon.v1 import sync_pb2 as pb
from replica.conversation import Conversation, Draft
from replica.ids import Digest, EntryId
from replica.link import HostInfo, ProfileInfo

FOLDER = Path(__file__).parents[2] / "suites" / "divergence"
_PROFILE = ProfileInfo(Digest(bytes(32)), "recorded", 4_096)


def recorded_divergences(seed: int | None = None) -> Iterator[Recording]:
    """Yield the recordings of the suite, or those that another seed gives."""
    if seed is not None:
        yield from map(Recording, divergences(seed))
        return
    for path in sorted(FOLDER.glob("*.json")):
        yield Recording(json.loads(path.read_text()))


def checks_of(recordings: Iterable[Recording]) -> Iterator[Check["Player"]]:
    """Yield recordings as cases."""
    for one in recordings:
        name = f"divergence/{one.name}"
        yield Check(name, one.requirements, one.title, _playing(one))


class Player:
    """Plays recordings against the hub at an address."""

    def __init__(self, address: str) -> None:
        """Play at `address`."""
        self._address = address

    async def play(self, recording: Recording) -> None:
        """Play all steps. Raises Violation, Overdue, AntiphonError."""
        steps: dict[str, Callable[[Recording, Json], Awaitable[None]]] = {
            "sync": self._sync,
            "denied": self._denied,
            "resolve": self._resolve,
            "drafts": self._drafts,
        }
        for number, step in enumerate(recording.steps, 1):
            try:
                await steps[step["do"]](recording, step)
            except (Violation, Overdue) as error:
                raise Violation(f"step {number} ({step['do']}): {error}") from error

    async def _sync(self, recording: Recording, step: Json) -> None:
        held = recording.held(step["holds"])
        async with self._reconciling(recording, step["key"], held) as one:
            is_equal = await one.run()
        found, wanted = sorted(one.detected), step["detects"]
        if wanted == [NOT_FOUND] and found != wanted:
            raise Violation("the hub holds this conversation already: play it with another --seed")
        equal(found, wanted, "the detected divergence")
        check(is_equal, f"the digests of hub and {step['replica']} never became equal")
        gained = sorted(map(recording.label, held.log.entries))
        equal(gained, sorted(step["then"]), f"the log of {step['replica']}")
        equal(held.log.digest.hex(), step["digest"], "the final digest")

    async def _denied(self, recording: Recording, step: Json) -> None:
        held = recording.held(step["holds"]) if step["holds"] else None
        empty = Conversation(recording.conversation)
        async with self._reconciling(recording, step["key"], held or empty) as one:
            is_equal = await one.run()
        check(not is_equal, "a key that is no member can open the conversation")
        equal(sorted(one.detected - {DIFFERENT}), step["detects"], "the answer to a stranger")

    @asynccontextmanager
    async def _reconciling(
        self, recording: Recording, key: str, held: Conversation
    ) -> AsyncIterator[Reconciling]:
        async with (
            Member.join(self._address, recording.key(key)) as member,
            member.linked() as link,
        ):
            yield Reconciling(link, held, recording.label)

    async def _resolve(self, recording: Recording, step: Json) -> None:
        request = recording.entries[step["request"]].id
        async with Member.join(self._address, recording.key(step["key"])) as member:
            asked = pb.ResolveRequest(conversation=recording.conversation, id=request)
            fate = await member.call("Resolve", asked)
        name = f"of {step['request']}"
        equal(pb.Fate.Name(fate.fate), "FATE_DURABLE", f"the fate {name}")
        for field, found in (("seal", fate.seal), ("generation", fate.generation)):
            label = recording.label(EntryId(found)) if found else None
            equal(label, step[field], f"the {field} {name}")

    async def _drafts(self, recording: Recording, step: Json) -> None:
        host, reader = recording.key(step["host"]), recording.key(step["reader"])
        frames = [_draft(recording, raw) for raw in step["frames"]]
        wanted = [frame for frame, raw in zip(frames, step["frames"], strict=True) if raw["shown"]]
        async with (
            Member.join(self._address, reader) as reading,
            Member.join(self._address, host) as hosting,
            reading.linked() as there,
            hosting.linked(HostInfo(hosting.public, "", (_PROFILE,))) as here,
        ):
            for link in (there, here):
                held = recording.held(step["holds"])
                check(await Reconciling(link, held, recording.label).run(), "no equal digest")
            await here.send(*frames)
            # Links keep their order, so a frame that passed wrongly came before the last one.
            await there.until(lambda: wanted[-1] in _drafts_of(there), "the last right draft")
            equal(len(_drafts_of(there)), len(wanted), "the number of drafts that passed")
            check(_drafts_of(there) == wanted, "other drafts passed than the right ones")


def _playing(recording: Recording) -> Callable[["Player"], Awaitable[None]]:
    return lambda player: player.play(recording)


def _draft(recording: Recording, raw: Json) -> Draft:
    return Draft(
        recording.conversation,
        EntryId(bytes.fromhex(raw["request"])),
        raw["run"],
        raw["token_offset"],
        tuple(raw["token_ids"]),
        raw["byte_offset"],
        bytes.fromhex(raw["data"]),
        Digest(bytes.fromhex(raw["digest"])),
        bytes.fromhex(raw["signature"]),
    )


def _drafts_of(link: KeptLink) -> list[Draft]:
    return [replace(m, progress=None) for m in link.inbox if isinstance(m, Draft)]
