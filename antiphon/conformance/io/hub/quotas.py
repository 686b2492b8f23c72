"""Cases of chapter 11: bounds that a key meets, and what goes on beyond them."""

from dataclasses import replace

from antiphon.conformance.cases import equal
from antiphon.conformance.io.hub.run import HELLO, TABLE, HubRun, greet, push, reasons
from antiphon.conformance.writers import said
from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.limits import (
    BODY_BYTES_MAX,
    LANES_PER_KEY_MAX,
    LINKS_PER_KEY_MAX,
    READER_ENTRIES_MAX,
    REVOCATIONS_PER_KEY_MAX,
    SEALS_PER_REQUEST_MAX,
)
from replica.log import Role, Seal, body_digest, codec, sign

_theme = TABLE.theme("quotas")

FULL = "QUOTA_EXCEEDED"


@_theme.shows("LIM-5", "LIM-2")
async def a_reader_writes_a_bounded_number_of_entries(run: HubRun) -> None:
    """Beyond 64 entries of a reader the next is QUOTA_EXCEEDED; others write on."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    owner = await run.push_all(history)
    caller = await run.enter(reader)
    entries = [history.draw(said(str(n)), reader) for n in range(READER_ENTRIES_MAX + 1)]
    found = await reasons(caller, *entries)
    equal(found[-1], FULL, "the reason for an entry beyond a reader's quota")
    equal(FULL in found[:-1], False, "QUOTA_EXCEEDED within a reader's quota")
    await push(owner, history.say())


@_theme.shows("LIM-5", "LIM-2")
async def a_key_has_a_bounded_number_of_lanes(run: HubRun) -> None:
    """Beyond 1,024 lanes of a key the next is QUOTA_EXCEEDED; its owner revokes it still."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    owner = await run.push_all(history)
    parents = [history.genesis]
    lanes = [
        history.writer("writer", epoch).write(history.id, said(""), parents=parents)
        for epoch in range(1, LANES_PER_KEY_MAX + 2)
    ]
    found = await reasons(await run.enter(writer), *lanes)
    equal(found[-1], FULL, "the reason for a lane beyond a key's quota")
    equal(set(found[:-1]), {""}, "the reasons within a key's quota")
    await push(owner, history.revoke(writer.public))


@_theme.shows("LIM-6")
async def a_host_seals_a_request_a_few_times_only(run: HubRun) -> None:
    """Beyond 8 seals of one request by one host the next is QUOTA_EXCEEDED."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    request = history.ask(host.public, after=history.say())
    await run.push_all(history)
    first = history.seal(request, host)
    body = history.held.log.body(first.id)
    assert isinstance(body, Seal)
    listed = [history.held.log.entries[i] for i in body.membership_heads]
    listed += [history.held.log.entries[i] for i in body.entries]
    more = [
        host.write(history.id, body, parents=[request], listed=listed)
        for _ in range(SEALS_PER_REQUEST_MAX)
    ]
    found = await reasons(await run.enter(host), first, *more)
    equal(found, [""] * SEALS_PER_REQUEST_MAX + [FULL], "the outcomes of nine seals")


@_theme.shows("LIM-6")
async def a_key_revokes_another_a_few_times_only(run: HubRun) -> None:
    """Beyond 16 revocations of one key by one other the next is QUOTA_EXCEEDED."""
    history = run.new()
    member = history.writer("member")
    history.grant(member.public, Role.WRITER)
    owner = await run.push_all(history)
    more = [history.revoke(member.public) for _ in range(REVOCATIONS_PER_KEY_MAX + 1)]
    found = await reasons(owner, *more)
    equal(found, [""] * REVOCATIONS_PER_KEY_MAX + [FULL], "the outcomes of 17 revocations")


@_theme.shows("LIM-1")
async def a_body_has_a_greatest_size(run: HubRun) -> None:
    """A body of 524,288 bytes is admitted, and one byte more is BODY_TOO_LARGE."""
    history = run.new()
    owner = await run.push_all(history)
    near = history.owner.restored().write(
        history.id, said("x" * (BODY_BYTES_MAX - 100)), parents=[history.genesis]
    )
    text = BODY_BYTES_MAX - 100 + BODY_BYTES_MAX - near.header.body_bytes
    largest = history.write(said("x" * text))
    equal(largest.header.body_bytes, BODY_BYTES_MAX, "the size of the kit's own largest body")
    await push(owner, largest)
    assert largest.body is not None
    body = largest.body + b"x"
    header = codec.encode_header(
        replace(largest.header, body_digest=body_digest(body), body_bytes=len(body))
    )
    signature = sign(header, history.owner.key)
    request = pb.PushRequest(entries=[log_pb2.Entry(header=header, signature=signature, body=body)])
    (found,) = (await owner.call("Push", request)).outcomes
    equal(found.fault.reason, "BODY_TOO_LARGE", "the reason for a body of 524,289 bytes")


@_theme.shows("LIM-2", "LIM-10")
async def a_key_has_a_bounded_number_of_links(run: HubRun) -> None:
    """Beyond 64 links of a key the next is RATE_LIMITED; those that run go on."""
    caller = await run.enter(run.new().owner)
    links = [await greet(caller) for _ in range(LINKS_PER_KEY_MAX)]
    beyond = caller.link()
    await beyond.send(HELLO)
    equal(await beyond.ended(), "RATE_LIMITED", "the reason for a link beyond a key's quota")
    await links[0].until_pong()
