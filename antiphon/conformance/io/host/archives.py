"""Archives: export and import, by whom, and of which bytes."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.pages import stored
from antiphon.conformance.io.host.service_calls import NOT_FOUND, call, reason_of
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from antiphon.v1 import host_pb2 as pb
from replica.io import HostCalls
from replica.log import Role
from replica.refusals import NotAllowed

_case = CASES.theme("archives").shows
PART_BYTES = 65_536
CONVERSATION = slice(8, 40)
"""The bytes of an archive that name its conversation (spec/08-checkpoint §8)."""


async def _exported(talk: Talk, calls: HostCalls) -> bytes:
    return b"".join([part async for part in calls.export(talk.held.id)])


def _parts(data: bytes) -> list[bytes]:
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]


async def _drop(talk: Talk, calls: HostCalls) -> None:
    await call(calls, "Evict", pb.EvictRequest(conversation=talk.held.id, checkpoints=True))


@_case("PAGE-17")
async def changed(run: UnderTest) -> None:
    """An archive that was changed, cut off or extended is refused, and nothing of it is kept."""
    async with stored(run) as (talk, calls, _):
        data = await _exported(talk, calls)
        await _drop(talk, calls)
        middle = len(data) // 2
        for name, wrong in (
            ("changed", data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]),
            ("cut off", data[:-1]),
            ("extended", data + b"\0"),
        ):
            reason = await reason_of(calls.import_(_parts(wrong)))
            equal(reason, "ARCHIVE_INVALID", f"the answer to an archive that was {name}")
            equal(await calls.list_checkpoints(talk.held.id), [], "the checkpoints kept of it")
        await calls.import_(_parts(data))
        check(await calls.list_checkpoints(talk.held.id), "a right archive leaves no checkpoint")


@_case("PAGE-18")
async def of_another_conversation(run: UnderTest) -> None:
    """An archive does not open as one of another conversation."""
    async with stored(run) as (talk, calls, _), run.talk() as other:
        await other.ask(tokens=1)
        data = bytearray(await _exported(talk, calls))
        data[CONVERSATION] = other.held.id
        reason = await reason_of(calls.import_(_parts(bytes(data))))
        equal(reason, "ARCHIVE_FOREIGN", "the answer to an archive of another conversation")


@_case("HOST-22", "PAGE-19")
async def of_readers(run: UnderTest) -> None:
    """A reader neither exports nor imports, and a stranger is told of no conversation."""
    async with stored(run) as (talk, calls, request), run.calls(talk, talk.stranger) as reader:
        data = await _exported(talk, calls)
        found = await reason_of(_exported(talk, reader))
        equal(found, NOT_FOUND, "the answer to Export of a stranger")
        found = await reason_of(reader.import_(_parts(data)))
        equal(found, NOT_FOUND, "the answer to Import of a stranger")
        await talk.other(Role.READER)
        await talk.answer(await talk.again(request, 1))
        found = await reason_of(_exported(talk, reader))
        equal(found, NotAllowed.reason, "the answer to Export")
        found = await reason_of(reader.import_(_parts(data)))
        equal(found, NotAllowed.reason, "the answer to Import")
