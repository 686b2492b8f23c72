"""Cases for model hosts: their seals, answers, drafts, refusals and calls."""

from antiphon.conformance.io.host import (
    access,
    answers,
    archives,
    calls,
    characters,
    contents,
    control,
    endings,
    forms,
    lies,
    opaque,
    pages,
    refusals,
    sampling,
    seals,
    tools,
)
from antiphon.conformance.io.host.talk import CASES, UnderTest

__all__ = [
    "CASES",
    "UnderTest",
    "access",
    "answers",
    "archives",
    "calls",
    "characters",
    "contents",
    "control",
    "endings",
    "forms",
    "lies",
    "opaque",
    "pages",
    "refusals",
    "sampling",
    "seals",
    "tools",
]
