"""The table of kinds is the one the specification prints, and the only one."""

import re
from pathlib import Path
from typing import get_args

import pytest

from antiphon.v1 import log_pb2
from replica.ids import PublicKey, Track
from replica.log.body import Body, Role
from replica.log.kinds import (
    CONTEXT_KINDS,
    CONTROL_KINDS,
    KINDS,
    Kind,
    is_known,
    kind_of,
    rules_of,
)
from replica.log.members import Membership

CHAPTER = Path(__file__).parents[3] / "spec" / "02-entry.md"
ROW = re.compile(r"^\| (\d+) ([A-Z]+)( \*c\*)? \| ([a-z]+) \| ([^|]+) \|", re.MULTILINE)
PRINTED = ROW.findall(CHAPTER.read_text())
UNKNOWN = 99


def test_the_table_names_every_kind_of_the_protocol() -> None:
    printed = {name: int(number) for number, name, *_ in PRINTED}
    assert printed == {kind.name: kind.value for kind in Kind}
    assert set(KINDS) == set(Kind)
    generated = {name.removeprefix("KIND_"): n for name, n in log_pb2.Kind.items() if n}
    assert generated == printed


@pytest.mark.parametrize(
    ("number", "is_control", "track", "roles"),
    [pytest.param(int(n), bool(c), track, roles, id=name) for n, name, c, track, roles in PRINTED],
)
def test_each_row_is_that_of_the_chapter(
    number: int, is_control: bool, track: str, roles: str
) -> None:
    rules = KINDS[number]
    assert rules.is_control == is_control
    assert rules.track == (None if track == "any" else Track[track.upper()])
    # The author of a genesis is its first owner, without an earlier role.
    named = {"\N{EN DASH}": "owner", "any": "reader, writer, owner, host"}.get(roles, roles)
    assert rules.roles == {Role[role.upper()] for role in named.split(", ")}


def test_seals_list_the_context_kinds_of_chapter_03() -> None:
    chapter = CHAPTER.with_name("03-order.md").read_text()
    named = re.search(r"\*context kinds\* are ([A-Z, ]+)\.", chapter)
    assert named is not None
    assert {Kind[name] for name in re.findall("[A-Z]+", named[1])} == CONTEXT_KINDS


def test_verdicts_rest_on_control_kinds_alone() -> None:
    assert {Kind.GENESIS, Kind.MEMBER, Kind.REQUEST, Kind.SEAL} == CONTROL_KINDS


def test_every_body_has_one_kind_and_every_kind_one_body() -> None:
    assert [rules.body for rules in KINDS.values()] == list(get_args(Body))
    for kind, rules in KINDS.items():
        assert rules.body is not None
        assert kind_of(object.__new__(rules.body)) == kind


@pytest.mark.parametrize("kind", list(Kind))
def test_an_owner_may_write_every_kind_a_writer_may(kind: Kind) -> None:
    allowed = rules_of(kind).roles
    assert (Role.WRITER not in allowed) or (Role.OWNER in allowed)
    assert Role.READER not in allowed


def test_an_unknown_kind_may_be_on_any_track_by_any_role() -> None:
    rules = rules_of(UNKNOWN)
    assert not is_known(UNKNOWN)
    assert (rules.track, rules.roles, rules.body) == (None, set(Role), None)
    assert not (rules.is_control or rules.is_context)


def test_an_unknown_critical_kind_needs_an_owner() -> None:
    assert rules_of(UNKNOWN, critical=True).roles == {Role.OWNER}
    assert rules_of(UNKNOWN, critical=True).track is None


@pytest.mark.parametrize("kind", list(Kind))
def test_critical_changes_nothing_for_a_known_kind(kind: Kind) -> None:
    assert is_known(kind)
    assert rules_of(kind, critical=True) == rules_of(kind)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("critical", [False, True])
@pytest.mark.parametrize("kind", [*Kind, UNKNOWN])
def test_the_membership_reads_the_roles_off_the_table(
    role: Role, critical: bool, kind: int
) -> None:
    key = PublicKey(bytes(32))
    membership = Membership(roles={key: frozenset({role})})
    allowed = role in rules_of(kind, critical=critical).roles
    assert membership.may_write(key, kind, critical=critical) == allowed
