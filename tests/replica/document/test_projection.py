"""The document: its content, agreement between replicas, and void updates."""

import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pycrdt import Doc, Map

from replica.document import projection as document_module
from replica.document.fold import NotCausal
from replica.document.lib0 import NestingTooDeep, ValueRefused, text
from replica.document.projection import (
    Document,
    DocumentEngineError,
    Edit,
    Update,
    client_id,
    entry_client,
    meta_set_by,
    project,
)
from replica.document.yjs import (
    EMPTY_UPDATE,
    Content,
    Struct,
    StructId,
    UpdateTooLarge,
    decode_update,
)
from replica.ids import EntryId, Lane
from tests.replica.document.document_writer import (
    SEAL,
    TrackWriter,
    assert_all_agree,
    edited,
    lane,
    meta,
    put,
    update_of,
)

# Content


def test_a_local_edit_has_the_values_written() -> None:
    track = TrackWriter()
    live = Document(track())

    def write(edit: Edit) -> None:
        edit.set_meta("title", "Fugue")
        edit.set_meta("tags", ["a", {"deep": None}])
        edit.set_meta("opus", 1080)
        edit.set_meta("pitch", 0.5)
        edit.set_branch("main", SEAL)
        edit.annotate(track.genesis.id, "star", True)
        edit.annotate(track.genesis.id, "note/1", "x")

    data = edited(live, 1, write)
    live.receive(track.add(data, parents=[track.genesis]))
    found = live.projection
    assert found.meta == {
        "title": "Fugue",
        "tags": ["a", {"deep": None}],
        "opus": 1080,
        "pitch": 0.5,
    }
    assert isinstance(found.meta["opus"], int)
    assert found.branches == {"main": SEAL.hex()}
    assert found.annotations == {track.genesis.id.hex(): {"star": True, "note/1": "x"}}
    assert found == project(track())
    assert not found.void


def test_a_deleted_key_is_gone_and_null_is_a_value() -> None:
    track = TrackWriter()
    live = Document(track())

    def step(write: Callable[[Edit], None]) -> None:
        live.receive(track.add(edited(live, 1, write), parents=[track.entries[live.heads[0]]]))

    step(lambda edit: edit.set_meta("a", None))
    assert live.projection.meta == {"a": None}
    step(lambda edit: edit.delete_meta("a"))
    assert live.projection.meta == {}
    step(lambda edit: edit.set_branch("b", SEAL))
    step(lambda edit: edit.annotate(SEAL, "k", 1))
    step(lambda edit: edit.delete_branch("b"))
    step(lambda edit: edit.delete_annotation(SEAL, "k"))
    assert (live.projection.branches, live.projection.annotations) == ({}, {})
    assert live.projection.digest == project([]).digest


def test_an_edit_that_changes_nothing_is_the_empty_update() -> None:
    live = Document()
    assert live.edit(lane(1)).update() == EMPTY_UPDATE
    assert edited(live, 1, lambda edit: edit.delete_meta("absent")) == EMPTY_UPDATE


def test_an_edit_leaves_no_trace_until_its_entry_comes_back() -> None:
    live = Document(TrackWriter()())
    before = live.projection
    edit = live.edit(lane(1))
    edit.set_meta("draft", "x")
    assert edit.update() == edit.update()
    assert live.projection == before


def test_an_overwritten_value_never_reaches_the_log() -> None:
    edit = Document().edit(lane(1))
    edit.set_meta("title", "my password")
    edit.set_meta("title", "Fugue")
    assert b"password" not in edit.update()


def test_an_update_carries_nothing_of_other_authors() -> None:
    track = TrackWriter()
    live = Document(track())
    live.receive(
        track.add(
            edited(live, 1, lambda e: e.set_meta("long", "y" * 5_000)), parents=[track.genesis]
        )
    )
    data = edited(live, 2, lambda edit: edit.set_meta("long", "z"))
    assert len(data) < 60
    assert b"y" * 10 not in data


def test_a_writers_structs_have_its_client_id_and_begin_at_clock_0() -> None:
    track = TrackWriter()
    live = Document(track())

    def write(key: str, edit: Edit) -> None:
        edit.set_meta(key, 1)
        edit.set_meta("more", key)

    for author, key in ((1, "a"), (2, "b"), (1, "a"), (1, "c")):
        data = edited(live, author, partial(write, key))
        names = [struct.id for struct in decode_update(data).structs]
        assert names
        assert names == [(client_id(lane(author)), clock) for clock in range(len(names))]
        live.receive(track.add(data, author=author, parents=[track.entries[i] for i in live.heads]))


def test_parents_that_cover_less_than_an_edit_was_made_on_make_it_void() -> None:
    track = TrackWriter()
    data = edited(Document(track()), 1, lambda edit: edit.set_meta("a", 1))
    one = track.add(data, parents=[track.genesis])
    data = edited(Document([track.genesis]), 2, lambda edit: edit.set_meta("b", 1))
    two = track.add(data, author=2, parents=[track.genesis])
    over = edited(Document(track()), 3, lambda edit: edit.set_meta("b", 2))
    for parents, void in (([one, two], None), ([one], "DOCUMENT_ORIGIN_UNKNOWN")):
        named = tuple(sorted(parent.id for parent in parents))
        added = Update(EntryId(b"\x07" * 32), lane(3), 0, None, named, 2, over)
        assert project([*track(), added]).void.get(added.id) == void


def test_what_two_entries_of_one_name_wrote_can_be_written_over() -> None:
    """Ids that begin alike can be made in a minute; the keys they wrote must not stay for good."""
    track, keys = TrackWriter(), ("title", "gone", "tags")

    def forged(edit: Edit) -> None:
        for key in keys:
            edit.set_meta(key, "forged")

    twins = [
        track.add(
            edited(Document([track.genesis]), author, forged),
            author=author, parents=[track.genesis], entry=b"the same" + bytes([author] * 24),
        )
        for author in (2, 3)
    ]  # fmt: skip
    other = track.add(
        edited(Document(track()), 4, lambda e: e.set_meta("n", 1)), author=4, parents=twins
    )

    def honest(edit: Edit) -> None:
        edit.set_meta("title", "Fugue")
        edit.delete_meta("gone")
        edit.delete_meta("n")
        edit.set_meta("new", 1)

    live = Document(track())
    mine = track.add(edited(live, 1, honest), parents=[other])
    assert assert_all_agree(track(), random.Random(1)).meta == {
        "title": "Fugue", "tags": "forged", "new": 1,
    }  # fmt: skip
    live.receive(mine)
    track.add(edited(live, 1, lambda e: e.set_meta("title", "Suite")), parents=[])
    found = assert_all_agree(track(), random.Random(1))
    assert (found.meta["title"], found.void) == ("Suite", {})


def test_annotations_of_one_entry_by_two_authors_both_stay() -> None:
    track = TrackWriter()
    live = Document(track())
    one = edited(live, 1, lambda edit: edit.annotate(SEAL, "star", True))
    two = edited(live, 2, lambda edit: edit.annotate(SEAL, "note", "x"))
    track.add(one, author=1, parents=[track.genesis])
    track.add(two, author=2, parents=[track.genesis])
    assert project(track()).annotations == {SEAL.hex(): {"star": True, "note": "x"}}


def test_of_two_concurrent_writes_the_later_in_lamport_and_id_wins() -> None:
    track = TrackWriter()
    pair = [
        track.add(
            update_of(put("k", str(by), by=client_id(lane(by)))), author=by, parents=[track.genesis]
        )
        for by in (1, 2)
    ]
    assert meta(track()) == {"k": "1" if pair[0].id > pair[1].id else "2"}
    follower = track.add(EMPTY_UPDATE, author=3, parents=[track.genesis])
    track.add(update_of(put("k", "late", by=client_id(lane(3)))), author=3, parents=[follower])
    assert meta(track()) == {"k": "late"}


def test_what_a_key_set_last_is_kept_apart_from_what_others_set() -> None:
    track = TrackWriter()
    live, last = Document(track()), track.genesis

    def set_title(by: int, title: str | None) -> None:
        nonlocal last
        edit = (lambda one: one.set_meta("title", title)) if title else _delete_title
        last = track.add(edited(live, by, edit), author=by, parents=[last])
        live.receive(*track())

    def found(by: int) -> object:
        return meta_set_by(lane(by).author, "title", reversed(track()))

    assert found(1) is None
    for by, title in ((1, "trip"), (2, "Rome"), (1, "trip"), (2, "Oslo"), (2, "Bonn")):
        set_title(by, title)
    assert (found(1), found(2), found(3)) == ("trip", "Bonn", None)
    assert meta_set_by(lane(2).author, "tags", track()) is None
    set_title(1, "Bonn")
    assert (found(1), found(2)) == ("Bonn", "Bonn")
    set_title(1, None)
    assert (found(1), found(2)) == (None, "Bonn")


def _delete_title(edit: Edit) -> None:
    edit.delete_meta("title")


def test_entries_a_reader_can_not_name_are_left_out() -> None:
    track = TrackWriter()
    by = client_id(lane(1))
    structs = [
        Struct(StructId(by, at), 1, Content.ANY, b"\x01\x77" + text(value), root=root, key=key)
        for at, (root, key, value) in enumerate(
            [
                ("branches", "short", "ab"),
                ("branches", "upper", "A" * 64),
                ("branches", "good", "a" * 64),
                ("annotations", "nokey", "x"),
                ("annotations", "a" * 64 + "/", "x"),
                ("annotations", "a" * 64 + "/k", "x"),
            ]
        )
    ]
    track.add(update_of(*structs), parents=[track.genesis])
    found = project(track())
    assert not found.void
    assert found.branches == {"good": "a" * 64}
    assert found.annotations == {"a" * 64: {"k": "x"}}


# Errors of the caller


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, -(2**64), b"x", {1}, "\ud800"]
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": {"b": v}}])
def test_values_that_are_not_json_are_refused_before_pycrdt(
    value: Any, wrap: Callable[[Any], Any]
) -> None:
    edit = Document().edit(lane(1))
    with pytest.raises(ValueRefused):
        edit.set_meta("k", wrap(value))
    with pytest.raises(ValueRefused):
        edit.annotate(SEAL, "k", wrap(value))
    assert edit.update() == EMPTY_UPDATE


def test_keys_and_ids_that_are_none_are_refused() -> None:
    edit = Document().edit(lane(1))
    refused: list[Callable[[], None]] = [
        lambda: edit.set_meta("\udfff", 1),
        lambda: edit.set_meta(5, 1),  # type: ignore[arg-type]
        lambda: edit.set_meta("k", {5: 1}),  # type: ignore[dict-item]
        lambda: edit.set_branch("b", EntryId(b"short")),
        lambda: edit.annotate(EntryId(b""), "k", 1),
        lambda: edit.annotate(SEAL, "", 1),
        lambda: edit.delete_annotation(SEAL, ""),
        lambda: edit.delete_meta("\udfff"),
    ]
    for call in refused:
        with pytest.raises(ValueRefused):
            call()
    assert edit.update() == EMPTY_UPDATE


def test_local_values_nest_64_deep_and_no_deeper() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    track = TrackWriter()
    live = Document(track())
    track.add(edited(live, 1, lambda edit: edit.set_meta("k", value)), parents=[track.genesis])
    assert meta(track()) == {"k": value}
    with pytest.raises(NestingTooDeep):
        live.edit(lane(1)).set_meta("k", [value])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NestingTooDeep):
        live.edit(lane(1)).set_meta("k", endless)


def test_an_edit_beyond_64_kib_is_refused() -> None:
    edit = Document().edit(lane(1))
    edit.set_meta("k", "x" * 65_536)
    with pytest.raises(UpdateTooLarge):
        edit.update()


def test_admission_errors_of_the_caller_are_raised_and_change_nothing() -> None:
    track = TrackWriter()
    entry = track.add(EMPTY_UPDATE, parents=[track.genesis])
    live = Document(track())
    good = Update(EntryId(b"\x01" * 32), lane(1), 1, entry.id, (), 2, EMPTY_UPDATE)
    for broken in (
        Update(good.id, good.lane, 1, entry.id, (), 1, EMPTY_UPDATE),
        Update(good.id, good.lane, 3, entry.id, (), 2, EMPTY_UPDATE),
        Update(good.id, good.lane, 1, entry.id, (SEAL,), 2, EMPTY_UPDATE),
    ):
        with pytest.raises(NotCausal):
            live.receive(broken)
    live.receive(good)
    assert live.heads == (good.id,)


def test_a_panic_of_pycrdt_becomes_a_typed_error(capfd: pytest.CaptureFixture[str]) -> None:
    doc: Doc[Map[Any]] = Doc()
    root = doc.get("meta", type=Map)
    with pytest.raises(DocumentEngineError), document_module._panics_typed():
        root["k"] = 2**64
    assert "panicked" in capfd.readouterr().err


def test_client_ids_have_53_bits_and_differ_by_every_part_of_the_lane() -> None:
    lanes = [lane(1), lane(2), Lane(lane(1).author, 8, 2), Lane(lane(1).author, 7, 3)]
    clients = [client_id(item) for item in lanes]
    assert len(set(clients)) == 4
    assert all(0 <= client < 2**53 for client in clients)
    assert entry_client(EntryId(b"\xff" * 32)) == 2**53 - 1


def test_only_the_document_imports_pycrdt() -> None:
    sources = Path(document_module.__file__).parent.rglob("*.py")
    importing = {
        source.name
        for source in sources
        if re.search(r"^\s*(from|import) pycrdt\b", source.read_text(), re.MULTILINE)
    }
    assert importing == {"projection.py"}
