"""Questions from the vector files, each with the answer that the vectors require.

Pure. A case is one question and the part of its answer that is compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.conformance.shown import as_json, contrast, is_same

Json = dict[str, Any]

ORDERS = 3
"""The orders in which the entries of a log are given: as written, backwards, and mixed."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question with the expected part of its answer."""

    name: str
    requirements: tuple[str, ...]
    question: Json
    expected: Json


def cases_of(file: str, content: Json) -> Iterator[Case]:
    """Return the cases of one vector file; none for a file that the core does not need."""
    build = _FILES.get(file)
    if build is not None:
        for case in build(content):
            yield Case(f"{file}/{case.name}", case.requirements, case.question, case.expected)


def differences(case: Case, answer: Mapping[str, Any]) -> list[str]:
    """Return the differences between an answer and the expected one, as texts."""
    return [
        contrast(name, as_json(answer[name]) if name in answer else "missing", as_json(value))
        for name, value in case.expected.items()
        if name not in answer or not is_same(answer[name], value)
    ]


def arranged(entries: Sequence[Json], order: int) -> list[Json]:
    """Return entries in one of several orders; the first is as they were written."""
    if order == 0:
        return list(entries)
    if order == 1:
        return list(reversed(entries))
    # Every stride coprime with the length visits each entry once.
    count = max(1, len(entries))
    stride = next(s for s in range(max(2, count * 2 // 5), 2 * count + 3) if _coprime(s, count))
    return [entries[(order + at * stride) % count] for at in range(len(entries))]


def _coprime(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1


# --- bytes ---------------------------------------------------------------------------------


def _wire(content: Json) -> Iterator[Case]:
    for number, v in enumerate(content["vectors"]):
        question = {"ask": "scan", "message": v["message"], "bytes": v["bytes"]}
        yield Case(f"{number}-{v['name']}", ("ENT-3",), question, {"reason": v["reason"]})


def _entry(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        expected = {name: v[name] for name in ("id", "fields", "canonical")}
        question = {"ask": "parse", "header": v["header"]}
        ids = ("ENT-4", "CONV-1")
        yield Case(v["name"], ids, question, {"reason": None, **expected})
        question = {"ask": "sign", "private_key": v["private_key"], "header": v["header"]}
        yield Case(f"{v['name']}-signed", ("CONV-1",), question, {"signature": v["signature"]})


def _signature(content: Json) -> Iterator[Case]:
    for number, v in enumerate(content["vectors"]):
        question = {"ask": "verify"} | {n: v[n] for n in ("public_key", "signature", "message")}
        yield Case(f"{number}-{v['name']}", ("ENT-6",), question, {"reason": v["reason"]})


def _heads(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        question = {"ask": "digest", "heads": v["heads"]}
        yield Case(v["name"], ("ORD-14",), question, {"digest": v["digest"]})


def _salts(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        question = {"ask": "salt", "author": v["author"], "retry_id": v["retry_id"]}
        yield Case(v["name"], ("CONV-1",), question, {"salt": v["salt"]})


def _call_keys(content: Json) -> Iterator[Case]:
    for number, v in enumerate(content["vectors"]):
        question = {"ask": "call-key"} | {n: v[n] for n in ("author", "text", "words")}
        expected = {"key": v["call_key"][4:68], "call": v["call_key"][72:136]}
        yield Case(f"{number}-{v['name']}", ("ENT-18",), question, expected)


def _bundles(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        expected: Json = {"reason": v["reason"]}
        if v["reason"] is None:
            expected |= {"entries": v["entries"], "blobs": v["blobs"]}
        ids = ("VER-7",) if v["reason"] == "DRAFT_UNKNOWN" else ("ENT-16",)
        yield Case(v["name"], ids, {"ask": "bundle", "bytes": v["bytes"]}, expected)


# --- proofs and drafts ---------------------------------------------------------------------


def _proofs(content: Json) -> Iterator[Case]:
    names = (
        "private_key", "client_nonce", "pinned", "seen_certificate", "now_ms", "hub_key",
        "hub_nonce", "stated_certificate", "expire_time_ms", "hub_signature",
    )  # fmt: skip
    for v in content["vectors"]:
        expected = {"reason": v["reason"]} | (
            {"signature": v["signature"]} if not v["reason"] else {}
        )
        question = {"ask": "prove"} | {name: v[name] for name in names}
        ids = ("TRUST-4",) if v["name"].startswith("pin") else ("LINK-1",)
        yield Case(v["name"], ids, question, expected)


def _drafts(content: Json) -> Iterator[Case]:
    names = ("conversation", "request", "run")
    for v in content["vectors"]:
        given = {name: v[name] for name in names}
        then = [v["then"]] if v["rule"] else []
        received = [True] * (len(v["frames"]) - 1) + [v["rule"] is None] + [True] * len(then)
        expected: Json = {"start_digest": v["start_digest"], "received": received}
        frames = [*v["frames"], *then]
        expected["digest"] = frames[-1]["digest"]
        question = {"ask": "drafts", **given, "host": v["host"], "frames": frames}
        yield Case(v["name"], ("LINK-17", "LINK-70"), question, expected)
        if v["rule"] is None:
            question = {"ask": "sign-draft", **given, "private_key": v["private_key"]}
            for number, frame in enumerate(v["frames"]):
                name = f"{v['name']}-signed-{number}"
                expected = {"signature": frame["signature"]}
                yield Case(name, ("LINK-70",), {**question, "frame": frame}, expected)


# --- logs ----------------------------------------------------------------------------------


def _bytes_of(entry: Json) -> Json:
    return {name: entry[name] for name in ("header", "signature", "body")}


_ADMISSION = {
    "WIRE_MALFORMED": ("ENT-3",),
    "HEADER_TOO_LARGE": ("ENT-1",),
    "BODY_TOO_LARGE": ("ENT-2",),
    "FIELD_INVALID": ("ENT-1",),
    "KEY_INVALID": ("ENT-6",),
    "SIGNATURE_INVALID": ("ENT-5",),
    "BODY_MISSING": ("ENT-7",),
    "BODY_MALFORMED": ("ENT-7",),
}
"""Per reason of a refusal, the rule that it is of."""
_ADMISSION_ALSO = {
    "equivocation": ("ENT-11",),
    "kind-unknown": ("VER-1",),
    "field-unknown": ("VER-2",),
    "request-unknown": ("VER-2",),
    "choice-unknown": ("VER-4",),
    "grant-role-0": ("VER-4",),
    "grant-role-9": ("VER-4",),
    "body-change-unknown": ("VER-4",),
}
"""Per vector, the rules that it shows besides."""
_ORDER_ALSO = {"spam": ("CONV-2",), "tail": ("CONV-2",), "closed-tail": ("CONV-2",)}
"""Likewise: these have ties of lamport, and lamports of several digits."""


def _admission(content: Json) -> Iterator[Case]:
    entries = content["entries"]
    for v in content["vectors"]:
        begins = not v["given"] and v["verdict"] != "pending"
        question = {
            "ask": "admit",
            "conversation": entries[v["entry"]]["id"] if begins else content["conversation"],
            "given": [_bytes_of(entries[name]) for name in v["given"]],
            "entry": _bytes_of(entries[v["entry"]]),
        }
        expected = {"verdict": v["verdict"]}
        match v["verdict"]:
            case "refused":
                expected["reason"] = v["reason"]
            case "admitted":
                expected["admitted"] = [entries[name]["id"] for name in v["admitted"]]
            case "pending":
                expected["missing"] = sorted(v["missing"])
        ids = ("ENT-10", *_ADMISSION.get(v["reason"], ()), *_ADMISSION_ALSO.get(v["name"], ()))
        yield Case(v["name"], ids, question, expected)


_ANY_ORDER = ("PROM-1", "MODEL-1")
"""What the same answer for each order of the entries shows."""


def _log(v: Json, order: int) -> Json:
    entries = arranged([_bytes_of(e) for e in v["entries"].values()], order)
    return {"conversation": v["conversation"], "entries": entries}


def _visibility(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        ids, keys = {n: e["id"] for n, e in v["entries"].items()}, v["keys"]
        expected = {
            "visible": sorted(ids[n] for n in v["visible"]),
            "members": {keys[name]: roles for name, roles in v["members"].items()},
            "covered": sorted(ids[n] for n in v["covered"]),
            "digest": v["digest"],
            "pending": [],
        }
        for name in ("membership_heads", "heads_to_join"):
            if name in v:
                expected[name] = sorted(ids[n] for n in v[name])
        for order in range(ORDERS):
            question = {"ask": "fold", **_log(v, order)}
            requirements = tuple(v.get("requirements", ("ORD-5", "ORD-13")))
            shown = (*requirements, *_ANY_ORDER)
            yield Case(f"{v['name']}-{order}", shown, question, expected)


def _order(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        ids = {n: e["id"] for n, e in v["entries"].items()}
        expected = {
            "seals": {ids[name]: _seal(seal, ids) for name, seal in v["seals"].items()},
            "reasons": {ids[n]: s["reason"] for n, s in v["seals"].items() if "reason" in s},
            "tips": [ids[n] for n in v["tips"]],
            "answers": {ids[n]: ids[a] if a else None for n, a in v["answers"].items()},
            "sealable": {ids[n]: s and _next(s, ids) for n, s in v["sealable"].items()},
            "tails": [_tail(t, ids) for t in v["tails"]],
        }
        asked = {
            "seals": sorted(expected["seals"]),
            "answers": sorted(expected["answers"]),
            "sealable": sorted(expected["sealable"]),
            "tails": [tail["tip"] for tail in expected["tails"]],
        }
        for order in range(ORDERS):
            question = {"ask": "order", **_log(v, order), **asked}
            requirements = tuple(v.get("requirements", ("ORD-6", "ORD-7", "ORD-10")))
            shown = (*requirements, *_ORDER_ALSO.get(v["name"], ()), *_ANY_ORDER)
            yield Case(f"{v['name']}-{order}", shown, question, expected)


def _seal(seal: Json, ids: Mapping[str, str]) -> Json:
    if seal["verdict"] != "counts":
        return {"verdict": seal["verdict"]}
    prev_seal, context = seal["prev_seal"], [ids[n] for n in seal["context"]]
    return {**seal, "prev_seal": prev_seal and ids[prev_seal], "context": context}


def _next(found: Json, ids: Mapping[str, str]) -> Json:
    prev_seal = found["prev_seal"]
    return {
        "prev_seal": prev_seal and ids[prev_seal],
        "entries": [ids[n] for n in found["entries"]],
    }


def _tail(found: Json, ids: Mapping[str, str]) -> Json:
    return {
        "tip": found["tip"] and ids[found["tip"]],
        "entries": [ids[n] for n in found["entries"]],
        "frontier": sorted(ids[n] for n in found["frontier"]),
    }


def _comparison(content: Json) -> Iterator[Case]:
    for v in content["vectors"]:
        ids = {n: e["id"] for n, e in v["entries"].items()}
        expected = {
            "heads": v["heads"],
            "send": [ids[n] for n in v["send"]],
            "want": sorted(v["want"]),
            "diverged": sorted(v["diverged"]),
        }
        in_order = ("ORD-1",) if len(v["send"]) > 1 else ()
        requirements = ("REC-3" if v["diverged"] else "REC-1", *in_order)
        for order in range(ORDERS):
            question = {"ask": "compare", **_log(v, order), "heads": v["peer"]}
            yield Case(f"{v['name']}-{order}", requirements, question, expected)


# --- the document --------------------------------------------------------------------------


def _document(content: Json) -> Iterator[Case]:
    for number, item in enumerate(content["clients"]):
        question = {"ask": "client"} | {n: item[n] for n in ("author", "epoch", "track")}
        yield Case(f"client-{number}", ("DOC-2",), question, {"client_id": str(item["client_id"])})
    for number, item in enumerate(content["entry_clients"]):
        question = {"ask": "client", "id": item["id"]}
        expected = {"client_id": str(item["client_id"])}
        yield Case(f"entry-client-{number}", ("DOC-3",), question, expected)
    for number, item in enumerate(content["canonical"]):
        question = {"ask": "canonical", "value": item["value"]}
        yield Case(f"canonical-{number}", ("DOC-17",), question, {"bytes": item["bytes"]})
    yield from _projections(content["cases"])


def _document_rules(content: Json) -> Iterator[Case]:
    yield from _projections(content["vectors"])


def _projections(vectors: Sequence[Json]) -> Iterator[Case]:
    for v in vectors:
        expected = {"reason": v["refused"]} if "refused" in v else {"reason": None}
        expected |= {n: v[n] for n in ("void", "projection", "digest") if n in v}
        for order in range(ORDERS):
            question = {"ask": "project", "entries": arranged(v["entries"], order)}
            yield Case(f"{v['name']}-{order}", (v["requirement"], "DOC-15"), question, expected)


_FILES: dict[str, Callable[[Json], Iterator[Case]]] = {
    "wire": _wire,
    "entry": _entry,
    "signature": _signature,
    "digest": _heads,
    "salt": _salts,
    "call-key": _call_keys,
    "bundle": _bundles,
    "proof": _proofs,
    "drafts": _drafts,
    "admission": _admission,
    "visibility": _visibility,
    "order": _order,
    "comparison": _comparison,
    "document": _document,
    "document-rules": _document_rules,
}
