"""References in texts: to a section of a chapter, to a requirement, and to a decision.

spec/03-order §5        a section of a chapter; `03 §5` and `03-order.md §5` too
spec/03-order §3, §4    two sections of one chapter
§5                      in a chapter of the spec: a section of its own
ORD-13                  a requirement of spec/requirements.toml
DECISIONS D12           the decision under the heading `### D12 …`
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_SECTIONS = r"(?P<sections>(?:(?:,| and| to|\u2013)? ?§\d+(?:\.\d+)*)*)"
_CHAPTER = re.compile(
    r"(?<![\w.])(?P<spec>spec/)?(?P<number>\d\d)(?:-(?P<name>[a-z]+(?:-\d+\b)?))?(?P<md>\.md)?[`)]*"
    + _SECTIONS
)
_MARKS = ("§", "spec/", ".md")
"""A reference to a chapter or a section has one of these; most texts have none."""
_SECTION = re.compile(r"§(\d+(?:\.\d+)*)")
_FOREIGN = re.compile(r"(?:\bRFC \d+,?|\w\.html) §\d+(?:\.\d+)*")
_REQUIREMENT = re.compile(r"\b([A-Z]{2,6})-(\d+)\b")
_DECISION = re.compile(r"\bDECISIONS(?:\.md)?[`\])]* (D\d+)\b")
_HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*) ", re.MULTILINE)
_DECISION_HEADING = re.compile(r"^### (D\d+) ", re.MULTILINE)


def sections_of(chapter: str) -> set[str]:
    """Return the numbers of the sections of a chapter's text."""
    return set(_HEADING.findall(chapter)) - {_own_number(chapter)}


def _own_number(chapter: str) -> str:
    title = re.match(r"# (\d\d) ", chapter)
    return title[1] if title else ""


def decisions_of(text: str) -> set[str]:
    """Return the ids of the decisions that DECISIONS.md has headings for."""
    return set(_DECISION_HEADING.findall(text))


@dataclass(frozen=True)
class Targets:
    """All that a reference may name."""

    chapters: Mapping[str, Collection[str]]
    """Sections by the name of their chapter: `03-order`."""
    requirements: Collection[str]
    decisions: Collection[str]

    def broken(self, text: str, *, within: str | None = None) -> list[str]:
        """Return the references of a text that name nothing; `within` is the chapter it is."""
        prefixes = {requirement.split("-")[0] for requirement in self.requirements}
        named = [m for m in _REQUIREMENT.finditer(text) if m[1] in prefixes]
        return [
            *self._broken_sections(text, within),
            *(m[0] for m in named if m[0] not in self.requirements),
            *(m[0] for m in _DECISION.finditer(text) if m[1] not in self.decisions),
        ]

    def _broken_sections(self, text: str, within: str | None) -> Iterator[str]:
        if not any(mark in text for mark in _MARKS):
            return
        rest = _FOREIGN.sub("", text)
        for match in _CHAPTER.finditer(rest):
            if match["spec"] or match["md"] or match["sections"]:
                yield from self._broken_chapter(match)
        for section in _SECTION.findall(_CHAPTER.sub("", rest)):
            if within is None or section not in self.chapters[within]:
                yield f"§{section}"

    def _broken_chapter(self, match: re.Match[str]) -> Iterator[str]:
        name = self._chapter(match["number"], match["name"])
        if name is None:
            yield match[0]
            return
        for section in _SECTION.findall(match["sections"]):
            if section not in self.chapters[name]:
                yield f"{name} §{section}"

    def _chapter(self, number: str, name: str | None) -> str | None:
        """Return the chapter of this number, unless the name beside it is another's."""
        found = (chapter for chapter in self.chapters if chapter.startswith(number + "-"))
        chapter = next(found, None)
        return chapter if name is None or chapter == f"{number}-{name}" else None
