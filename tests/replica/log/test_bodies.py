"""Bodies are decoded once, when they are asked for."""

from dataclasses import replace

from replica.limits import DOCUMENT_UPDATE_BYTES_MAX
from replica.log.bodies import Bodies
from replica.log.body import DocumentUpdate, Grant, Member, Message, Role, Text
from replica.log.entry import Entry
from tests.support.writers import Writer, said

ADA = Writer(1)
GENESIS = ADA.genesis()
GRANT = ADA.write(
    GENESIS.conversation, Member(Grant(Writer(2).public, Role.WRITER)), parents=[GENESIS]
)
WORDS = ADA.write(GENESIS.conversation, said("words"), parents=[GENESIS])


def of(*entries: Entry) -> Bodies:
    return Bodies({entry.id: entry for entry in entries})


def test_a_body_is_read_and_kept() -> None:
    bodies = of(WORDS)
    body = bodies.body(WORDS.id)
    assert isinstance(body, Message)
    assert body.parts == (Text("words"),)
    assert bodies.body(WORDS.id) is body
    assert not bodies.is_malformed(WORDS.id)


def test_a_missing_body_is_none_until_it_comes() -> None:
    held = {WORDS.id: replace(WORDS, body=None)}
    bodies = Bodies(held)
    assert bodies.body(WORDS.id) is None
    assert not bodies.is_malformed(WORDS.id)
    held[WORDS.id] = WORDS
    assert bodies.body(WORDS.id) is None
    bodies.forget(WORDS.id)
    assert bodies.body(WORDS.id) is not None


def test_a_body_that_does_not_parse_is_malformed() -> None:
    bodies = of(replace(WORDS, body=b"\xff" * 20))
    assert bodies.body(WORDS.id) is None
    assert bodies.is_malformed(WORDS.id)


def test_an_update_that_is_too_long_parses() -> None:
    """Its verdict is one of the document (DOC-5)."""
    update = DocumentUpdate(bytes(DOCUMENT_UPDATE_BYTES_MAX + 1))
    entry = ADA.write(GENESIS.conversation, update, parents=[GENESIS])
    bodies = of(entry)
    assert bodies.body(entry.id) == update
    assert not bodies.is_malformed(entry.id)


def test_an_unknown_kind_is_never_malformed() -> None:
    header = replace(WORDS.header, kind=77)
    bodies = of(replace(WORDS, header=header, body=b"\xff" * 20))
    assert bodies.body(WORDS.id) is None
    assert not bodies.is_malformed(WORDS.id)


def test_an_entry_names_its_ancestors() -> None:
    bodies = of(GRANT, WORDS)
    assert set(bodies.named(GRANT.id)) == {GENESIS.id}
    assert set(bodies.named(WORDS.id)) == set(WORDS.header.ancestors())
