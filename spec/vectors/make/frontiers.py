"""Cases of order.json about starts, frontiers, late messages and what is apart (ORD-10)."""

from spec.vectors.make.build import FORK, TOOLS
from spec.vectors.make.history import ADA, BEA, BOB, EVE, HAL, IDA, History, next_seal, tail


def _settled_message() -> dict[str, object]:
    s = History()
    s.say("word", BOB)
    s.ask("ask", ADA, "word")
    s.seal("seal", "ask", ["word", "ask"])
    s.answer("answer", "seal")
    s.cancel("cancel", BOB, "word")
    s.say("reply", BEA, "answer", "word")
    return s.vector(
        "cancel-of-listed-message",
        "the chain lists `word`: a later CANCEL of it ends nothing, and the next entry does not"
        " follow it, though that follows `word`",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-10"]}


def _listed_elsewhere() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.ask("left", ADA, "word", basis="seal")
    s.seal("seal-left", "left", ["answer", "word", "left"], prev_seal="seal")
    s.answer("answer-left", "seal-left")
    s.ask("right", BEA, "answer", basis="seal", conflict=FORK)
    s.seal("seal-right", "right", ["answer", "right"], prev_seal="seal")
    s.answer("answer-right", "seal-right")
    s.say("reply", BEA, "word", "answer-right")
    s.cancel("cancel", BOB, "word")
    return s.vector(
        "cancel-of-message-listed-elsewhere",
        "`word` is sealed on the other branch; here it is reached and not settled, and the next"
        " entry follows its CANCEL",
        tips=["seal-left", "seal-right"],
        answers={},
        tails=[
            tail("seal-left", [], ["answer-left"]),
            tail("seal-right", ["reply"], ["reply", "cancel"]),
        ],
    ) | {"requirements": ["ORD-10"]}


def _second_cancel() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.cancel("first", BOB, "word")
    s.cancel("second", BOB, "word")
    s.say("reply", BEA, "second")
    return s.vector(
        "cancel-reached-already",
        "`reply` follows one CANCEL of `word`: the next entry need not follow the first of them",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["word", "reply"], ["reply"]), tail(None, [], ["genesis"])],
    ) | {"requirements": ["ORD-10"]}


def _by_owner() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.cancel("cancel", BEA, "word", basis="seal")
    return s.vector(
        "cancel-by-owner-in-frontier",
        "an owner withdrew `word`: the next entry follows the owner's CANCEL, also with a basis",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["word"], ["cancel"])],
    ) | {"requirements": ["ORD-10"]}


def _of_void_message() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.say("reply", BEA, "word")
    s.cancel("cancel", BOB, "word", epoch=2)
    s.revoke("revoke-bob", ADA, BOB, ["cancel"], parents=s.heads)
    return s.vector(
        "cancel-of-void-message",
        "`word` is void by now and its author was removed; a cut keeps its CANCEL, which the next"
        " entry follows",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["reply"], ["reply", "cancel"])],
    ) | {"requirements": ["ORD-10"]}


def _void_start() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("tools", BEA, TOOLS, b"", parents=["answer"])
    s.revoke("revoke-hal", ADA, HAL, ["seal"], parents=s.heads)
    return s.vector(
        "start-void-answer",
        "the first answer is the start, though a cut made it void since",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["tools"], ["tools"])],
    ) | {"requirements": ["ORD-10"]}


def _follows_both() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("tools", BEA, TOOLS, b"", parents=["ask"])
    s.ask("more", BOB, "tools", "answer", basis="seal")
    return s.vector(
        "not-waiting-behind-the-start",
        "`more` follows the answer, too: it does not wait, and what it follows beside the answer is"
        " in the tail",
        tips=["seal"],
        answers={},
        sealable={"more": next_seal("seal", ["answer", "tools", "more"])},
        tails=[tail("seal", ["tools", "more"], ["more"])],
    ) | {"requirements": ["ORD-10"]}


def _late_reply() -> dict[str, object]:
    s = History()
    s.ask("other", BEA, "genesis", host=IDA, conflict=FORK)
    s.seal("seal-other", "other", ["other"], by=IDA)
    s.say("word", BOB, "seal-other")
    s.say("hello", ADA)
    s.cancel("cancel", BOB, "word")
    s.ask("ask", ADA, "cancel", "hello", conflict=FORK)
    s.seal("seal", "ask", s.sorted("hello", "other", "ask"))
    s.answer("answer", "seal")
    s.say("reply", BEA, "word")
    return s.vector(
        "late-reply-to-withdrawn",
        "`word` is withdrawn, and settled as what is listed is: `reply` descends from it and is"
        " late here, though `word` follows a seal of the other branch",
        tips=["seal-other", "seal"],
        answers={},
        tails=[
            tail("seal", ["reply"], ["answer", "reply"]),
            tail("seal-other", ["reply"], ["cancel", "reply"]),
        ],
    ) | {"requirements": ["ORD-10"]}


def _late_behind_seal() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("other", BEA, "genesis", host=IDA, conflict=FORK)
    s.seal("seal-other", "other", ["other"], by=IDA)
    s.say("word", BOB, "seal-other", "genesis")
    s.say("aside", BOB, "genesis", epoch=2)
    return s.vector(
        "late-behind-seal-apart",
        "`word` reaches a seal of the other branch, and is late there alone; `aside` is late on"
        " both",
        tips=["seal-other", "seal"],
        answers={},
        tails=[
            tail("seal", ["aside"], ["answer", "aside"]),
            tail("seal-other", ["aside", "word"], ["word", "aside"]),
        ],
    ) | {"requirements": ["ORD-10"]}


def _late_behind_seal_of_listed() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("first", ADA, "hello", host=IDA)
    s.ask("ask", BEA, "first")
    s.seal("seal", "ask", ["hello", "first", "ask"])
    s.answer("answer", "seal")
    s.seal("seal-first", "first", ["hello", "first"], by=IDA)
    s.say("word", BOB, "seal-first", "genesis")
    return s.vector(
        "late-behind-seal-of-listed-request",
        "this branch lists `first`; the seal of `first` is on another one, and apart: `word`, which"
        " follows it, is late there alone",
        tips=["seal-first", "seal"],
        answers={},
        tails=[tail("seal", [], ["answer"]), tail("seal-first", ["word"], ["word"])],
    ) | {"requirements": ["ORD-10"]}


def _behind_withdrawn() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("murmur", EVE, "hello")
    s.say("word", BOB, "murmur")
    s.cancel("cancel", BOB, "word")
    s.ask("ask", ADA, "cancel")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.say("reply", BEA, "word", "answer")
    s.cancel("cancel-murmur", ADA, "murmur")
    return s.vector(
        "cancel-behind-withdrawn-message",
        "`murmur` lies behind `word`, which the chain settles as withdrawn: the next entry does not"
        " reach it, and need not follow its CANCEL",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-10"]}


def _closed_and_listed() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("first", ADA, "hello")
    s.cancel("cancel", ADA, "first")
    s.ask("left", BEA, "first", host=IDA)
    s.seal("seal-left", "left", ["hello", "first", "left"], by=IDA)
    s.answer("answer-left", "seal-left", by=IDA)
    s.ask("right", BEA, "genesis", conflict=FORK)
    s.seal("seal-right", "right", ["right"])
    s.answer("answer-right", "seal-right")
    s.say("word", BOB, "first", "genesis")
    return s.vector(
        "late-behind-closed-request",
        "`first` is closed and has no seal of its own: it is not apart, though the other branch"
        " lists it, and `word` is late on both",
        tips=["seal-right", "seal-left"],
        answers={},
        tails=[
            tail("seal-left", ["word"], ["answer-left", "word"]),
            tail("seal-right", ["word"], ["answer-right", "word"]),
        ],
    ) | {"requirements": ["ORD-10"]}


CASES = (
    _settled_message, _listed_elsewhere, _second_cancel, _by_owner, _of_void_message, _void_start,
    _follows_both, _late_reply, _late_behind_seal, _late_behind_seal_of_listed,
    _behind_withdrawn, _closed_and_listed,
)  # fmt: skip
