"""What `import antiphon` offers, and what it costs."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon import aio

HEAVY = ("torch", "pycrdt", "grpc", "pydantic", "rich", "cryptography", "google.protobuf")


def test_there_are_few_names_and_each_has_a_docstring():
    assert len(antiphon.__all__) <= 40
    assert antiphon.__all__ == sorted(antiphon.__all__, key=lambda n: (n.islower(), n))
    for name in antiphon.__all__:
        found = getattr(antiphon, name)
        assert name == "Event" or inspect.getdoc(found), name
    with pytest.raises(AttributeError):
        antiphon.nothing  # noqa: B018


def test_the_async_form_has_the_names_of_the_blocking_one():
    assert set(aio.__all__) <= set(antiphon.__all__)
    for name in ("Replica", "Conversation", "Branch", "Run"):
        there = {n for n in dir(getattr(aio, name)) if not n.startswith("_")}
        here = {n for n in dir(getattr(antiphon, name)) if not n.startswith("_")}
        assert here - {"id"} <= there  # set by __init__ there
        internal = {
            "place", "went_on", "options", "grant_host", "caught_up", "check_taken", "replica",
            "moving",
        }  # fmt: skip
        assert there - here <= internal


def test_ids_and_reasons_are_found_by_name():
    trip = antiphon.ConversationId(bytes.fromhex("ab" * 32))
    assert trip == antiphon.EntryId(trip) == antiphon.PublicKey(trip)
    assert antiphon.FinishReason.LENGTH.name == "LENGTH"
    assert issubclass(antiphon.WriteUnconfirmed, antiphon.StoreError)


def test_a_blocking_method_has_the_docstring_of_the_async_one():
    assert antiphon.Conversation.ask.__doc__ == aio.Conversation.ask.__doc__


def test_every_name_and_method_is_in_the_reference():
    page = (Path(antiphon.__file__).parents[1] / "docs" / "reference.md").read_text()
    listed = {*re.findall(r"\w+", page)}
    renamed = {"open": "open_replica", "local": "local_replica", "Event": "Event", "aio": "aio"}
    names = (*antiphon.__all__, *antiphon._TYPES)
    assert {renamed.get(name, name) for name in names} <= listed
    for name in ("Replica", "Conversation", "Run"):
        assert {n for n in dir(getattr(antiphon, name)) if not n.startswith("_")} <= listed


def test_nothing_heavy_is_imported_before_a_name_is_used():
    code = "import json, sys, antiphon; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert not {*HEAVY} & {*json.loads(done.stdout)}


def test_torch_and_pycrdt_are_not_imported_with_the_whole_library():
    code = "import json, sys, antiphon as a; a.open; a.aio; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert not {"torch", "pycrdt"} & {*json.loads(done.stdout)}


def test_the_package_says_that_it_is_typed():
    assert (Path(antiphon.__file__).parent / "py.typed").is_file()
