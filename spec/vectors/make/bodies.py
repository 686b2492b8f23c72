"""Cases of order.json about bodies that parse or not: a tail shows which (02 §5, ORD-10)."""

from dataclasses import replace

from spec.vectors.make.build import (
    CANCEL,
    FORK,
    GENERATION,
    JOIN,
    MESSAGE,
    TOOLS,
    message,
    one_field,
    sha256,
    signed,
)
from spec.vectors.make.history import ADA, BOB, HAL, History, next_seal, tail

ID, SHORT = sha256(b"an id"), sha256(b"an id")[:31]
TEXT = one_field(1, b"")


def _part(number: int, content: bytes) -> bytes:
    return one_field(number, content)


def _of_parts(*parts: bytes) -> bytes:
    return message({1: 2, 2: list(parts)})


def _result(*parts: bytes) -> bytes:
    return _part(5, message({2: list(parts)}))


def _opaque(payload: bytes) -> bytes:
    return _part(7, one_field(1, b"example.org") + payload)


MESSAGES: dict[str, bytes] = {
    "bare": b"",
    "speaker-unknown": message({1: 9, 2: [TEXT]}),
    "parts-full": _of_parts(*[TEXT] * 256),
    "result-many": _of_parts(_result(*[TEXT] * 257)),
    "result-in-result": _of_parts(_result(_result(TEXT))),
    "media": _of_parts(_part(2, one_field(1, ID))),
    "tokens": _of_parts(_part(6, one_field(2, ID))),
    "opaque-data": _of_parts(_opaque(one_field(10, b""))),
    "opaque-blob": _of_parts(_opaque(one_field(11, ID))),
}
NO_MESSAGES: dict[str, bytes] = {
    "parts-many": _of_parts(*[TEXT] * 257),
    "part-empty": _of_parts(b""),
    "result-unknown": _of_parts(_result(one_field(9, b""))),
    "media-none": _of_parts(_part(2, b"")),
    "media-short": _of_parts(_part(2, one_field(1, SHORT))),
    "media-in-result": _of_parts(_result(_part(2, one_field(1, SHORT)))),
    "tokens-none": _of_parts(_part(6, b"")),
    "opaque-none": _of_parts(_opaque(b"")),
    "opaque-short": _of_parts(_opaque(one_field(11, SHORT))),
    "opaque-empty": _of_parts(_opaque(one_field(11, b""))),
    "key-half": one_field(1, 2) + one_field(3, one_field(1, ID)),
    "key-other-half": one_field(1, 2) + one_field(3, one_field(2, ID)),
}
_LOGPROB = one_field(12, one_field(2, b"\1\2") + one_field(3, bytes(8)))
GENERATIONS: dict[str, bytes] = {
    "empty": b"",
    "finish-unknown": one_field(4, 99),
    "logprobs": one_field(1, b"\1\2") + one_field(12, b"") + _LOGPROB,
    "digests": b"".join(one_field(n, ID) for n in (7, 8, 9, 10, 14)),
}
NO_GENERATIONS: dict[str, bytes] = {
    **{f"digest-{n}": one_field(n, SHORT) for n in (7, 8, 9, 10, 14)},
    "logprobs-few": one_field(1, b"\1\2") + _LOGPROB,
    "logprobs-alone": _LOGPROB,
    "top-ids": one_field(1, b"\1") + one_field(12, one_field(2, b"\1\2") + one_field(3, bytes(4))),
    "generation-part": one_field(2, b""),
    "generation-parts": one_field(2, TEXT) * 257,
}


def _parses() -> dict[str, object]:
    s = History()
    s.first_turn()
    for bodies in (MESSAGES, NO_MESSAGES):
        for name, content in bodies.items():
            s.write(name, BOB, MESSAGE, content, parents=["answer"])
    for bodies in (GENERATIONS, NO_GENERATIONS):
        for name, content in bodies.items():
            s.write(name, HAL, GENERATION, content, parents=["answer"])
    s.write("no-tools", BOB, TOOLS, b"\xff", parents=["answer"])
    s.write("no-join", ADA, JOIN, b"\xff", parents=["answer"])
    s.write("tools-empty", BOB, TOOLS, one_field(1, b""), parents=["answer"])
    s.write("join", ADA, JOIN, one_field(9, b"new"), parents=["answer"])
    names = s.sorted(*MESSAGES, *GENERATIONS, "tools-empty", "join")
    return s.vector(
        "bodies",
        "the tail holds what parses: a message without parts, an unknown speaker and a result of"
        " 257 parts do; a part without a known content and a digest of 31 bytes do not, in a"
        " result either",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", names, names)],
    ) | {"requirements": ["ENT-7", "ORD-10"]}


def _filled() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("said", BOB, "answer", basis="seal")
    whole = s.entries.pop("said")
    s.keep("bodiless", replace(whole, body=None))
    s.keep("said", signed(whole.header, BOB))
    return s.vector(
        "filled",
        "a message that comes twice, first without its body, is in the tail",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["said"], ["said"])],
    ) | {"requirements": ["ENT-10", "ORD-10"]}


def _cancel_void() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.write("cancel", ADA, CANCEL, b"\xff", parents=["ask"])
    s.ask("over", BOB, "cancel", basis="seal")
    return s.vector(
        "cancel-unreadable",
        "a CANCEL closes whatever its body is: bodies have no effect on verdicts",
        tips=["seal"],
        answers={"ask": None},
        sealable={"over": next_seal("seal", ["over"])},
        tails=[tail("seal", ["over"], ["over"])],
    ) | {"requirements": ["ENT-7", "ORD-7", "ORD-10"]}


CHECKPOINT = 9
KEPT = message({1: ID, 2: ID, 3: 64, 4: ID, 5: 1})


def _checkpoint() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("kept", HAL, CHECKPOINT, KEPT, parents=["answer"])
    return s.vector(
        "checkpoint",
        "a CHECKPOINT is in no tail, and what comes follows its answer",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", [], ["answer"])],
    ) | {"requirements": ["ORD-10"]}


def _checkpoint_followed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("kept", HAL, CHECKPOINT, KEPT, parents=["answer"])
    s.ask("behind", ADA, "kept", basis="seal")
    s.ask("more", ADA, "kept", basis="seal", conflict=FORK)
    s.seal("listed", "more", ["answer", "kept", "more"], prev_seal="seal", void="COVERAGE_WRONG")
    return s.vector(
        "checkpoint-followed",
        "nor in a context, where a request follows it",
        tips=["seal"],
        answers={"behind": None},
        sealable={"behind": next_seal("seal", ["answer", "behind"])},
    ) | {"requirements": ["ORD-6"]}


CASES = (_parses, _filled, _cancel_void, _checkpoint, _checkpoint_followed)
