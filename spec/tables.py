"""Write tables of the chapters from the code and the protocol files: `python -m spec.tables`.

tests/test_repo.py compares the chapters with the output of this module.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from antiphon.conformance.forms import FORMS
from replica import limits
from replica.errors import (
    AntiphonError,
    EntryRefused,
    HostError,
    RequestRefused,
    StoreError,
    Unavailable,
)
from replica.io.serving.status import code_of
from replica.log.kinds import KINDS, Kind
from spec.limit_meanings import MEANINGS
from spec.vectors.make import manifest
from syncd.calls import Warned

FOLDER = Path(__file__).parent


def errors() -> str:
    """Return the table of reasons, one row per class that defines one."""
    rows = ["| reason | cause | next step | retry | status |", "|---|---|---|---|---|"]
    for kind in classes():
        instance = kind.__new__(kind)
        cause = (kind.__doc__ or "").split("\n")[0].rstrip(".")
        retry = "yes" if kind.retryable else "no"
        status = "warning" if isinstance(instance, Warned) else code_of(instance).name
        rows.append(f"| {kind.reason} | {cause} | {kind.next_step} | {retry} | {status} |")
    return "\n".join(rows)


def classes() -> list[type[AntiphonError]]:
    """Return the error classes of the project, the first of each reason.

    Those of the command and of child processes are left out.
    """
    for package in ("antiphon", "replica", "syncd", "model_host"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if "__main__" not in module.name and ".cli" not in module.name:
                importlib.import_module(module.name)
    by_reason: dict[str, type[AntiphonError]] = {}
    for kind in [AntiphonError, *_below(AntiphonError)]:
        if not kind.__module__.startswith(("antiphon.cli", "antiphon.daemons", "tests")):
            by_reason.setdefault(kind.reason, kind)
    return sorted(by_reason.values(), key=lambda k: (_family(k), k.reason))


def _family(kind: type[AntiphonError]) -> int:
    roots = (EntryRefused, RequestRefused, Unavailable, StoreError, HostError)
    return next((n for n, root in enumerate(roots) if issubclass(kind, root)), len(roots))


def _below(kind: type[AntiphonError]) -> Iterator[type[AntiphonError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def limits_table() -> str:
    """Return the table of limits, in the order of replica/limits.py."""
    rows = ["| limit | value | kind | bounds | reason |", "|---|---|---|---|---|"]
    for name, value in vars(limits).items():
        if name.isupper():
            kind, bounds, reason = MEANINGS[name]
            number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
            rows.append(f"| {name} | {number} | {kind} | {bounds} | {reason or '-'} |")
    return "\n".join(rows)


FIELD = re.compile(r"((?:^  //.*\n)+)^  (?:(repeated) )?(\w+) (\w+) = (\d+);", re.MULTILINE)

BODIES = {
    Kind.GENESIS: "1 to 16 different owners, the author first; what clients propose for requests, "
    "within the bounds of a REQUEST; consent to sharing of pages (08 §6)",
    Kind.MEMBER: "a grant, or a revocation with at most 1,024 cuts",
    Kind.MESSAGE: "at most 256 parts, a label of at most 64 bytes",
    Kind.TOOLS: "definitions in order",
    Kind.REQUEST: "at most 16 stop strings, none empty; a response format of 1 byte to 64 KiB, "
    "a tool name of at most 256 bytes; at most 64 membership heads, ascending",
    Kind.SEAL: "03 §3; 1 to 8,192 entries with as many `tokens_per_entry`; at most 64 membership "
    "heads, ascending",
    Kind.GENERATION: "07; at most 256 parts; `logprobs` for no token or for each, with as many "
    "`top_ids` as `top_logprobs`",
    Kind.CANCEL: "its parent is the request, or a MESSAGE to withdraw (03 §3)",
    Kind.CHECKPOINT: "an archive (08 §9) of 1 to 2^24 tokens and 1 to 2^30 bytes; its parent is "
    "the GENERATION",
    Kind.DOCUMENT: "one Yjs update (06)",
    Kind.JOIN: "empty: it gathers more than 64 heads",
}
"""Per kind: the contents and bounds of its body."""


def fields(message: str) -> str:
    """Return the table of the fields of a message, from the comments in log.proto."""
    proto = (FOLDER.parent / "proto" / "antiphon" / "v1" / "log.proto").read_text()
    block = proto[proto.index(f"message {message} {{") :].partition("\n}\n")[0]
    rows = ["| # | field | type | rule |", "|---|---|---|---|"]
    for comment, repeated, type_, name, number in FIELD.findall(block):
        rule = " ".join(line.strip(" /") for line in comment.splitlines())
        kind = f"{repeated} {type_}".strip()
        rows.append(f"| {number} | {name} | {kind} | {rule} |")
    return "\n".join(rows)


def kinds_table() -> str:
    """Return the table of kinds, from the one that the code reads."""
    rows = ["| kind | track | author's role | body |", "|---|---|---|---|"]
    for kind, body in BODIES.items():
        rules = KINDS[kind]
        mark = " *c*" if rules.is_control else ""
        track = rules.track.name.lower() if rules.track is not None else "any"
        roles = ", ".join(role.name.lower() for role in sorted(rules.roles))
        roles = "\N{EN DASH}" if kind is Kind.GENESIS else roles
        rows.append(f"| {kind} {kind.name}{mark} | {track} | {roles} | {body} |")
    return "\n".join(rows)


def namespace_table() -> str:
    """Return the table of the namespace's fields, from the docstrings of its class."""
    tree = ast.parse((FOLDER.parent / "model_host" / "kv" / "namespace.py").read_text())
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef))
    rows = ["| field | value |", "|---|---|"]
    for field, comment in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(comment, ast.Expr):
            text = ast.literal_eval(comment.value).rstrip(".")
            rows.append(f"| `{ast.unparse(field.target)}` | {text} |")
    return "\n".join(rows)


def manifest_table() -> str:
    """Return the table of the rules of a manifest, from the maker of its vectors."""
    rows = [f"| {rule} | {text} |" for rule, text in manifest.RULES.items()]
    return "\n".join(["| rule | |", "|---|---|", *rows])


def questions_table() -> str:
    """Return the table of the questions that the conformance kit asks a core."""
    rows = ["| ask | given | answer |", "|---|---|---|"]
    rows += [f"| `{ask}` | {form.given} | {form.answer} |" for ask, form in FORMS.items()]
    return "\n".join(rows)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "header": ("02-entry.md", partial(fields, "Header")),
    "kinds": ("02-entry.md", kinds_table),
    "sampling": ("07-host.md", partial(fields, "Sampling")),
    "manifest": ("08-checkpoint.md", manifest_table),
    "namespace": ("08-checkpoint.md", namespace_table),
    "errors": ("10-errors.md", errors),
    "limits": ("11-limits.md", limits_table),
    "questions": ("conform-core.md", questions_table),
}


def chapter_with(name: str) -> tuple[Path, str]:
    """Return the path of a chapter, and its text with the table generated from the code."""
    file, table = TABLES[name]
    path = FOLDER / file
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    new, count = pattern.subn(lambda m: f"{m[1]}{table()}\n{m[2]}", path.read_text())
    assert count == 1, f"{file} has one table of {name}"
    return path, new


def main() -> None:
    """Write all tables."""
    for name in TABLES:
        path, new = chapter_with(name)
        path.write_text(new)


if __name__ == "__main__":
    main()
