"""The errors that the library promises are found where a program looks for them."""

import builtins
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon import aio
from antiphon.library import raised
from tests.antiphon.library.test_public import HEAVY


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Yield the public names of both forms, and the methods of their classes, with docstrings."""
    for form in (antiphon, aio):
        for name in form.__all__:
            found = getattr(form, name)
            yield name, inspect.getdoc(found) or ""
            for method in dir(found) if inspect.isclass(found) else ():
                if not method.startswith("_"):
                    yield f"{name}.{method}", inspect.getdoc(getattr(found, method)) or ""


def raised_in(docstring: str) -> set[str]:
    """Return the classes that the sentences with "Raises" name."""
    text = " ".join(docstring.partition(">>>")[0].split())
    sentences = re.findall(r"\b[Rr]aises ([^.]*)", text)
    names = {name for one in sentences for name in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", one)}
    return {name for name in names if not hasattr(builtins, name)}


def test_every_error_that_a_docstring_names_is_in_both_forms():
    named = {name: raised_in(text) for name, text in public_docstrings()}
    assert named["Replica.join"] >= {"JoinPending", "InviteInvalid", "HubUnreachable"}
    for where, names in named.items():
        for name in names:
            assert name in raised.__all__, f"{where} names {name}"
    for name in raised.__all__:
        found = getattr(antiphon, name)
        assert issubclass(found, antiphon.AntiphonError)
        assert found is getattr(aio, name)


def test_every_error_is_in_the_reference_by_its_name():
    page = (Path(antiphon.__file__).parents[1] / "docs" / "reference.md").read_text()
    listed = {*re.findall(r"\w+", page.partition("## Errors")[2])}
    assert {*raised.__all__} <= listed


def test_every_error_of_the_page_on_errors_can_be_caught_by_its_class():
    page = (Path(antiphon.__file__).parents[1] / "docs" / "errors.md").read_text()
    listed = {*re.findall(r"^\| ([A-Z_]+) \|", page, re.MULTILINE)}
    reasons = {getattr(antiphon, name).reason for name in raised.__all__}
    assert "RATE_LIMITED" in listed
    assert listed - reasons == {"CONTEXT_TOO_LONG"}  # the word of a host, in an AnswerRefused


def test_no_name_but_an_error_is_looked_for_elsewhere():
    """A submodule, or what Python itself asks a module for, imports nothing heavy."""
    asked = "from antiphon import library; hasattr(antiphon, '__wrapped__')"
    code = f"import json, sys, antiphon; {asked}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert not {*HEAVY} & {*json.loads(done.stdout)}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        antiphon.Nothing  # noqa: B018
