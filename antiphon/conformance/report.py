"""Reports of a run: as text, JSON, JUnit XML and one HTML page. Pure."""

import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from xml.sax.saxutils import escape, quoteattr

from antiphon.conformance.questions import Case

_NOT_OF_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has not, escaped or not."""


class Named(Protocol):
    """A case of any suite."""

    @property
    def name(self) -> str:
        """Its name, of which the first part is its theme."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The requirement ids that it shows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case; it passed if there are no problems and it was run."""

    case: Named
    problems: tuple[str, ...]
    not_run: str = ""
    """The reason why it does not apply or was not run; empty where it was."""
    answer: object = None
    """The answer of a core to the question, as JSON; null without one."""


@dataclass(slots=True)
class Requirement:
    """The cases of one requirement id."""

    id: str
    passed: int = 0
    failed: list[Outcome] = field(default_factory=list)
    not_run: list[Outcome] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Return passed, failed, or not applicable where none of its cases was run."""
        if self.failed:
            return "failed"
        return "passed" if self.passed else "not applicable"

    @property
    def reasons(self) -> list[str]:
        """Return the reasons why cases were not run, each once."""
        return list(dict.fromkeys(outcome.not_run for outcome in self.not_run))


def by_requirement(outcomes: Iterable[Outcome]) -> list[Requirement]:
    """Return the requirements that the cases name, by id; a case may count for several."""
    found: dict[str, Requirement] = {}
    for outcome in outcomes:
        for requirement in outcome.case.requirements:
            entry = found.setdefault(requirement, Requirement(requirement))
            if outcome.not_run:
                entry.not_run.append(outcome)
            elif outcome.problems:
                entry.failed.append(outcome)
            else:
                entry.passed += 1
    return sorted(found.values(), key=lambda r: requirement_order(r.id))


def requirement_order(requirement: str) -> tuple[str, int]:
    """Return the key that sorts requirement ids: the word, then the number."""
    word, _, number = requirement.partition("-")
    return word, int(number)


def failed(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes with problems."""
    return [outcome for outcome in outcomes if outcome.problems]


def not_run(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes of cases that were not run."""
    return [outcome for outcome in outcomes if outcome.not_run]


def _summary(outcomes: Sequence[Outcome]) -> str:
    cases = "case" if len(outcomes) == 1 else "cases"
    text = f"{len(outcomes)} {cases}, {len(failed(outcomes))} failed"
    left_out = len(not_run(outcomes))
    return f"{text}, {left_out} not run" if left_out else text


def as_text(outcomes: Sequence[Outcome]) -> str:
    """Return a table of requirements, the failed cases and a summary."""
    lines = []
    for requirement in by_requirement(outcomes):
        wrong = len(requirement.failed)
        verdict = requirement.verdict
        if wrong:
            verdict = f"{wrong} of {wrong + requirement.passed} FAILED"
        elif requirement.not_run:
            verdict += f" ({len(requirement.not_run)} not run: {'; '.join(requirement.reasons)})"
        lines.append(f"{requirement.id:12}{requirement.passed + wrong:6}  {verdict}")
    for outcome in failed(outcomes):
        lines.append(f"FAILED {outcome.case.name} ({', '.join(outcome.case.requirements)})")
        lines += [f"    {problem}" for problem in outcome.problems]
    lines.append(_summary(outcomes))
    return "\n".join(lines) + "\n"


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return one object: the counts, the requirements, the failed cases, and those not run."""
    value = {
        "cases": len(outcomes),
        "failed": [
            {
                "name": outcome.case.name,
                "requirements": list(outcome.case.requirements),
                "problems": list(outcome.problems),
            }
            for outcome in failed(outcomes)
        ],
        "not_run": {outcome.case.name: outcome.not_run for outcome in not_run(outcomes)},
        "requirements": {
            r.id: {
                "verdict": r.verdict,
                "passed": r.passed,
                "failed": len(r.failed),
                "not_run": len(r.not_run),
                "reasons": r.reasons,
            }
            for r in by_requirement(outcomes)
        },
    }
    return json.dumps(value, indent=1) + "\n"


def as_failed_questions(outcomes: Iterable[Outcome]) -> str:
    """Return a line of JSON for each failed question, with the answers given and expected."""
    return "".join(
        json.dumps(
            {
                "name": outcome.case.name,
                "requirements": list(outcome.case.requirements),
                "problems": list(outcome.problems),
                "question": outcome.case.question,
                "answer": outcome.answer,
                "expected": outcome.case.expected,
            }
        )
        + "\n"
        for outcome in failed(outcomes)
        if isinstance(outcome.case, Case)
    )


def as_junit(outcomes: Sequence[Outcome]) -> str:
    """Return JUnit XML: one test case for each case."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="antiphon conform" tests="{len(outcomes)}"'
        f' failures="{len(failed(outcomes))}" skipped="{len(not_run(outcomes))}">',
    ]
    for outcome in outcomes:
        ids = quoteattr(" ".join(outcome.case.requirements))
        name = quoteattr(outcome.case.name)
        if outcome.not_run:
            reason = quoteattr(outcome.not_run)
            lines.append(f"<testcase classname={ids} name={name}><skipped message={reason}/>")
            lines.append("</testcase>")
            continue
        if not outcome.problems:
            lines.append(f"<testcase classname={ids} name={name}/>")
            continue
        text = escape("\n".join(outcome.problems))
        lines.append(f"<testcase classname={ids} name={name}><failure>{text}</failure></testcase>")
    return _NOT_OF_XML.sub("\ufffd", "\n".join([*lines, "</testsuite>"]) + "\n")


def as_html(outcomes: Sequence[Outcome]) -> str:
    """Return one page without scripts: a row per requirement, its failed cases below it."""
    rows = []
    for requirement in by_requirement(outcomes):
        verdict = requirement.verdict
        reasons = html.escape("; ".join(requirement.reasons))
        rows.append(
            f'<tr class="{verdict}"><td>{requirement.id}</td><td>{verdict}</td>'
            f"<td>{requirement.passed}</td><td>{len(requirement.failed)}</td>"
            f"<td>{len(requirement.not_run)}</td><td>{_details(requirement)}{reasons}</td></tr>"
        )
    style = (
        "body{font:16px sans-serif;margin:2em}td,th{padding:.2em 1em;text-align:left;"
        "vertical-align:top}.failed td:first-child{color:#b00020;font-weight:bold}"
        "pre{white-space:pre-wrap}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Antiphon conformance'
        f"</title>\n<style>{style}</style>\n<h1>Antiphon conformance</h1>\n"
        f"<p>{_summary(outcomes)}.</p>\n"
        "<table><tr><th>requirement<th>verdict<th>passed<th>failed<th>not run<th></tr>\n"
        + "\n".join(rows)
        + "\n</table></html>\n"
    )


def _details(requirement: Requirement) -> str:
    return "".join(
        f"<details><summary>{html.escape(outcome.case.name)}</summary>"
        f"<pre>{html.escape(chr(10).join(outcome.problems))}</pre></details>"
        for outcome in requirement.failed
    )
