"""Entries that a client writes: their lanes, what they name, and where it may write none."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.client.entries import asked
from antiphon.conformance.io.client.session import ME, Session, theme
from antiphon.conformance.suites.divergences import write_answer, write_seal
from antiphon.conformance.writers import Writer, said
from replica.ids import EntryId
from replica.link import Entries
from replica.log import Conflict, Entry, Member, Revocation

_case = theme("writing")
CRITICAL_KIND = 99


@_case("ENT-13")
async def lanes_without_gaps(s: Session) -> None:
    """A client numbers its lanes without gaps, each entry behind the one before, over restarts."""
    await s.joined()
    for text in ("one", "two", "three"):
        await s.append(text)
    await s.synchronized()
    await s.connect(keep=True)
    await s.synchronized()
    await s.append("four")
    await s.synchronized()
    mine = _written(s)
    equal(len(mine), 4, "the number of its entries")
    positions = [(entry.header.lane, entry.header.seq) for entry in mine]
    check(len(set(positions)) == len(positions), "the client wrote two entries at one position")


def _written(s: Session) -> list[Entry]:
    mine = s.entries.public(ME)
    return [e for e in s.held.log.entries.values() if e.header.author == mine]


@_case("ENT-13")
async def sent_entries_are_stored(s: Session) -> None:
    """An entry that was sent is in the client's store: after a restart it is sent again."""
    await s.joined()
    s.hub.passes = lambda message: not isinstance(message, Entries)
    written = EntryId(bytes.fromhex(await s.append()))
    await s.sees(lambda: s.sent(Entries), "Entries")
    s.hub.passes = lambda _message: True
    await s.connect(keep=True)
    await s.synchronized()
    check(written in s.held.log.entries, "an entry that was sent is not in the client's store")


@_case("ORD-10")
async def frontier(s: Session) -> None:
    """An entry follows all that was said at once, and a request the message before it."""
    await s.joined()
    for label, author in (("one", "eve"), ("two", "ada")):
        s.entries.say(label, author, s.base, "genesis")
    s.bring("one", "two")
    await s.synchronized()
    written = await _appended(s)
    at_once = sorted(s.entry(label).id for label in ("one", "two"))
    equal(sorted(written.header.parents), at_once, "the parents of a message behind two others")
    asked_now = (await s.ask("ask", host=s.entries.public("hal").hex()))["id"]
    await s.synchronized()
    header = s.held.log.entries[EntryId(bytes.fromhex(asked_now))].header
    equal(header.parents, (written.id,), "the parents of a request")
    equal(Conflict(header.conflict), Conflict.QUEUE, "the conflict rule of a request")


@_case("ORD-10")
async def behind_an_answer(s: Session) -> None:
    """An entry behind an answered request follows the answer, and extends its seal."""
    _, labels = await asked(s)
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    write_answer(s.entries, "answer", labels, "seal")
    s.bring("seal", "answer")
    await s.synchronized()
    header = (await _appended(s)).header
    equal(header.parents, (s.entry("answer").id,), "the parents of a message behind an answer")
    equal(header.basis, s.entry("seal").id, "the basis of a message behind an answer")


async def _appended(s: Session) -> Entry:
    """Let the client append a message; return it as the hub has it."""
    written = EntryId(bytes.fromhex(await s.append()))
    await s.synchronized()
    return s.held.log.entries[written]


def _bring_critical(s: Session, author: str) -> None:
    """Let a member append an entry of an unknown critical kind."""
    writer = Writer.of_key(s.entries.key(author).private_bytes_raw(), epoch=2)
    entry = writer.write(
        s.entries.conversation,
        said("of a newer version"),
        parents=[s.entry("genesis")],
        kind=CRITICAL_KIND,
        critical=True,
    )
    s.hub.bring(writer.public, s.entries.conversation, entry)


@_case("ENT-15", "VER-3")
async def critical_kind(s: Session) -> None:
    """A client writes nothing where an owner wrote an entry of an unknown critical kind."""
    await s.joined()
    _bring_critical(s, "ada")
    await s.synchronized()
    answer = await s.tries("append", text="Hello.")
    equal(answer.get("error"), "CRITICAL_KIND_UNKNOWN", "the error of append")
    answer = await s.tries("ask", host=s.entries.public("hal").hex())
    equal(answer.get("error"), "CRITICAL_KIND_UNKNOWN", "the error of ask")
    await s.barrier()
    equal(s.sent(Entries), [], "the entries that it sends")


@_case("VER-3")
async def critical_kind_of_a_writer(s: Session) -> None:
    """An entry of a critical kind that no owner wrote is void, and stops nobody."""
    await s.joined()
    _bring_critical(s, "eve")
    await s.synchronized()
    await s.append()
    await s.synchronized()


@_case("ENT-21")
async def uncovered_parents(s: Session) -> None:
    """A client names no entry that a revocation left uncovered."""
    await s.joined()
    s.entries.say("one", "eve", s.base, "genesis")
    s.bring("one")
    await s.synchronized()
    change = Member(Revocation(s.entries.public("eve"), ()))
    s.entries.write("revoke-eve", "ada", change, [*s.base, "one"], [s.base[-1]])
    s.bring("revoke-eve")
    await s.synchronized()
    written = EntryId(bytes.fromhex(await s.append()))
    await s.synchronized()
    header = s.held.log.entries[written].header
    check(s.entry("one").id not in header.parents, "the client names an uncovered entry")
