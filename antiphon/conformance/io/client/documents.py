"""Edits of the shared document by a client."""

from antiphon.conformance.cases import equal
from antiphon.conformance.io.client.session import Session, theme
from replica.ids import EntryId, Lane, Track
from replica.link import Entries
from replica.log import DocumentUpdate, Entry

_case = theme("documents")
NESTING_MAX = 64
ONE_STRUCT = b"\x01\x01"
"""The first bytes of an update of one section with one struct (spec/06 §1)."""


async def _titled(s: Session) -> Entry:
    """Let eve set the title, and the client receive it; return her entry."""
    await s.joined()
    edit = s.entries.held(s.base).document.edit(Lane(s.entries.public("eve"), 1, Track.DOCUMENT))
    edit.set_meta("title", "Fugue")
    s.entries.write("titled", "eve", DocumentUpdate(edit.update()), s.base, ["genesis"])
    s.bring("titled")
    await s.synchronized()
    return s.entry("titled")


async def _edited(s: Session, key: str, value: object) -> Entry:
    """Let the client set a key; return its entry, which must not be void."""
    written = EntryId(bytes.fromhex((await s.ask("edit", key=key, value=value))["id"]))
    await s.synchronized()
    projection = s.held.document.projection
    equal(dict(projection.void), {}, "the void updates")
    equal(projection.meta[key], value, f"the value of {key}")
    return s.held.log.entries[written]


@_case("DOC-21", "DOC-22")
async def own_changes(s: Session) -> None:
    """An update holds the client's change alone, and follows the entries it was made on."""
    titled = await _titled(s)
    tagged = await _edited(s, "tags", ["music"])
    equal(tagged.header.parents, (titled.id,), "the parents of an edit")
    body = s.held.log.body(tagged.id)
    assert isinstance(body, DocumentUpdate), "it changed the document"
    equal(body.update[:2], ONE_STRUCT, "the sections and structs of one change")
    equal(s.held.document.projection.meta["title"], "Fugue", "the title")


@_case("DOC-22")
async def replaced_value(s: Session) -> None:
    """A value that replaces another one is valid, and follows its entry."""
    titled = await _titled(s)
    replaced = await _edited(s, "title", "Canon")
    equal(replaced.header.parents, (titled.id,), "the parents of an edit")


@_case("DOC-20")
async def values_outside_json(s: Session) -> None:
    """A value that is nested too deep or an integer too large is refused, and nothing is sent."""
    await s.joined()
    deep: list[object] = []
    for _ in range(NESTING_MAX):
        deep = [deep]
    for value, reason in ((deep, "DOCUMENT_NESTING_TOO_DEEP"), (2**53, "DOCUMENT_VALUE_REFUSED")):
        answer = await s.tries("edit", key="title", value=value)
        equal(answer.get("error"), reason, "the error of edit")
    await s.barrier()
    equal(s.sent(Entries), [], "the entries that it sends")
    await _edited(s, "title", deep[0])
