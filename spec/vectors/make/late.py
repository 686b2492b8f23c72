"""Cases of order.json with messages beside a request that was sealed without them (ORD-10)."""

from spec.vectors.make.build import FORK, JOIN, TOOLS, WRITER
from spec.vectors.make.history import ADA, BOB, CAT, EVE, IDA, History, next_seal, tail


def _two_turns() -> History:
    """Write two turns, and a message beside the second request."""
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.say("late", BOB, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    return s


def _fork() -> History:
    """Write two branches, and a message that neither has."""
    s = History()
    s.two_branches()
    s.say("late", BOB, "answer", basis="seal")
    return s


def _late() -> dict[str, object]:
    s = _two_turns()
    s.answer("answer-2", "seal-2")
    s.ask("third", ADA, "answer-2", "late", basis="seal-2")
    return s.vector(
        "late",
        "`late` follows the answer, beside the request that was sealed: the next context has it",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        sealable={"third": next_seal("seal-2", ["answer-2", "late", "third"])},
        tails=[tail("seal-2", s.sorted("late", "third"), ["third"])],
    )


def _unanswered() -> dict[str, object]:
    s = _two_turns()
    s.say("wait", ADA, "more", basis="seal-2")
    s.say("hello-rather", BOB)
    return s.vector(
        "late-unanswered",
        "late messages are in the tail of a tip without an answer, too, also those that follow"
        " the genesis",
        tips=["seal-2"],
        answers={"more": None},
        tails=[tail("seal-2", s.sorted("late", "hello-rather", "wait"),
                    ["late", "hello-rather", "wait"])],
    )  # fmt: skip


def _branches() -> dict[str, object]:
    s = _fork()
    s.say("on-left", ADA, "answer-left", "late", basis="seal-left")
    s.ask("again", BOB, "answer-right", basis="seal-right")
    s.seal("seal-again", "again", ["answer-right", "again"], prev_seal="seal-right")
    s.say("wait", BOB, "again", "late", basis="seal-again")
    return s.vector(
        "late-branches",
        "a late message is in the tails of both branches; what follows it on one of them is in no"
        " other tail, whether it follows an answer or a request of its branch",
        tips=["seal-left", "seal-again"],
        answers={"again": None},
        tails=[
            tail("seal-left", s.sorted("late", "on-left"), ["on-left"]),
            tail("seal-again", s.sorted("late", "wait"), ["wait"]),
        ],
    )


def _first_seal() -> dict[str, object]:
    s = _fork()
    s.say("on-left", ADA, "answer-left", "late", basis="seal-left")
    s.say("behind", BOB, "late", basis="seal")
    s.ask("take", BOB, "answer-right", "late", basis="seal-right")
    s.seal("seal-take", "take", ["answer-right", "late", "take"], prev_seal="seal-right")
    s.ask("beside", ADA, "answer-left", basis="seal-left")
    s.seal("seal-beside", "beside", ["answer-left", "beside"], prev_seal="seal-left")
    return s.vector(
        "late-first-seal",
        "the first branch with a request takes a late message, and what follows it alone;"
        " `on-left` stays late on its own branch",
        tips=["seal-take", "seal-beside"],
        answers={"take": None, "beside": None},
        tails=[
            tail("seal-take", ["behind"], ["behind", "take"]),
            tail("seal-beside", ["on-left"], ["on-left", "beside"]),
        ],
    )


def _apart() -> dict[str, object]:
    s = _two_turns()
    s.say("asked", BOB, "answer", basis="seal")
    s.ask("open", BOB, "asked", basis="seal")
    s.say("behind-open", BOB, "open")
    s.say("edited", BOB, "answer", basis="seal")
    s.ask("edit", BOB, "edited", basis="seal", conflict=FORK)
    s.answer("no-edit", "edit")
    s.say("behind-edit", BOB, "edit")
    s.say("refused", BOB, "answer", basis="seal")
    s.ask("ask-refused", BOB, "refused", basis="seal")
    s.answer("no", "ask-refused")
    s.say("behind-refused", BOB, "ask-refused")
    s.ask("void-edit", EVE, "late", conflict=FORK)
    s.say("behind-void", BOB, "void-edit")
    return s.vector(
        "late-apart",
        "the words of a request that may still be answered, and of one that forks, even if it was"
        " refused, are on a branch of their own; those of a queued one that was refused, and of a"
        " reader's, are late",
        tips=["seal-2"],
        answers={"more": None, "edit": "no-edit", "ask-refused": "no"},
        tails=[
            tail(
                "seal-2",
                s.sorted("late", "refused", "behind-refused", "behind-void"),
                ["more", "behind-refused", "behind-void"],
            )
        ],
    )


def _behind_start() -> dict[str, object]:
    s = _two_turns()
    s.answer("answer-2", "seal-2")
    s.ask("third", ADA, "answer-2", "late", basis="seal-2", conflict=FORK)
    return s.vector(
        "late-and-fork",
        "a request that follows the answer is not apart, though it forks",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        tails=[tail("seal-2", s.sorted("late", "third"), ["third"])],
    )


def _kinds() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("join", ADA, JOIN, b"", parents=["answer"], basis="seal")
    s.write("tools", BOB, TOOLS, b"", parents=["answer"], basis="seal")
    s.ask("more", ADA, "join", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.write("join-late", ADA, JOIN, b"", parents=["answer"], basis="seal")
    s.say("behind-join", BOB, "join", basis="seal")
    s.say("behind-tools", BOB, "tools", basis="seal")
    return s.vector(
        "late-kinds",
        "messages alone are late, no JOIN and no tools; the entries between them and the chain may"
        " be of any kind, also one that the chain passed over",
        tips=["seal-2"],
        answers={"more": None},
        tails=[tail("seal-2", s.sorted("behind-join", "behind-tools"),
                    ["more", "behind-join", "behind-tools"])],
    )  # fmt: skip


def _passed_over() -> dict[str, object]:
    s = History()
    s.say("early", CAT)
    s.say("hello", ADA, "early")
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    return s.vector(
        "late-passed-over",
        "`early` was void when the chain passed over it; a request that follows the chain never"
        " reaches it, so it is not late",
        tips=["seal"],
        answers={"ask": None},
        tails=[tail("seal", [], ["ask"])],
    )


def _side_answer() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("slow", ADA, "answer", basis="seal")
    s.seal("seal-slow", "slow", ["answer", "slow"], prev_seal="seal")
    s.cancel("cancel", ADA, "slow")
    s.ask("taken-over", ADA, "cancel", basis="seal-slow", host=IDA)
    s.seal("seal-2", "taken-over", ["taken-over"], prev_seal="seal-slow", by=IDA)
    s.answer("side", "seal-slow")
    s.say("thanks", BOB, "side", basis="seal-slow")
    s.answer("answer-2", "seal-2", by=IDA)
    s.ask("next", ADA, "answer-2", "thanks", basis="seal-2")
    return s.vector(
        "late-side-answer",
        "an answer that came after its request was closed is no context, until a message follows"
        " it",
        tips=["seal-2"],
        answers={"slow": "side", "taken-over": "answer-2"},
        sealable={"next": next_seal("seal-2", ["answer-2", *s.sorted("side", "thanks", "next")])},
        tails=[tail("seal-2", s.sorted("thanks", "next"), ["next"])],
    )


def _listed_request() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("first", BOB, "hello", host=IDA, conflict=FORK)
    s.ask("ask", ADA, "first")
    s.seal("seal", "ask", ["hello", "first", "ask"])
    s.seal("seal-first", "first", ["hello", "first"], by=IDA)
    s.answer("answer", "seal-first", by=IDA)
    s.say("thanks", BOB, "answer", basis="seal-first")
    return s.vector(
        "late-listed-request",
        "`ask` follows a request that was sealed on a branch of its own: what follows the answer"
        " there is not late here",
        tips=["seal", "seal-first"],
        answers={"ask": None, "first": "answer"},
        tails=[tail("seal", [], ["ask"]), tail("seal-first", ["thanks"], ["thanks"])],
    )


def _void_seal() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("bad", "ask", ["ask"], void="COVERAGE_WRONG")
    s.answer("lost", "bad")
    s.say("thanks", BOB, "lost")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    return s.vector(
        "late-void-seal",
        "a message that follows the answer of a void seal is late",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["thanks"], ["thanks", "answer"])],
    )


def _two_branches() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("other", BOB, "hello", conflict=FORK)
    s.ask("then", BOB, "other", conflict=FORK)
    s.seal("seal-then", "then", ["hello", "other", "then"])
    s.say("beside", BOB, "hello")
    s.say("joined", BOB, "beside", "other")
    return s.vector(
        "late-two-branches",
        "a request that forks has a branch of its own also behind a sealed one: a message that"
        " follows it is late on its branch alone",
        tips=["seal", "seal-then"],
        answers={"ask": "answer", "then": None},
        tails=[
            tail("seal", ["beside"], s.sorted("answer", "beside")),
            tail("seal-then", ["beside", "joined"], s.sorted("then", "joined")),
        ],
    )


def _no_tip() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.ask("ask", BOB, "hello")
    s.seal("void", "ask", ["ask"], void="COVERAGE_WRONG")
    s.say("behind", BOB, "void")
    return s.vector(
        "no-tip-none-late",
        "before the first seal that counts nothing is late: a message behind a void seal is in no"
        " tail",
        tips=[],
        answers={"ask": None},
        tails=[tail(None, ["hello", "ask"], ["ask"])],
    )


def _joined() -> dict[str, object]:
    s = _two_turns()
    s.ask("wait", BOB, "more", basis="seal-2")
    s.answer("answer-2", "seal-2")
    s.say("joined", BOB, "answer-2", "wait", basis="seal-2")
    s.say("behind", BOB, "wait", basis="seal-2")
    return s.vector(
        "waiting-joined",
        "what follows a request that waits is left out, unless it follows the answer too",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        tails=[tail("seal-2", s.sorted("late", "joined"), s.sorted("late", "joined"))],
    )


def _closed() -> dict[str, object]:
    s = _two_turns()
    s.say("words", BOB, "answer", basis="seal")
    s.ask("shut", BOB, "words", basis="seal")
    s.cancel("cancel", BOB, "shut")
    s.say("behind", BOB, "shut")
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.say("others", BOB, "answer", basis="seal")
    s.ask("open", BOB, "others", basis="seal")
    s.cancel("no-close", CAT, "open")
    return s.vector(
        "late-closed",
        "the words of a queued request that was closed are late; another writer's CANCEL closes"
        " none",
        tips=["seal-2"],
        answers={"more": None, "shut": None},
        tails=[tail("seal-2", s.sorted("late", "words", "behind"), ["more", "late", "behind"])],
    )


def _closed_sealed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("other", BOB, "hello")
    s.seal("seal-other", "other", ["hello", "other"])
    s.cancel("cancel", BOB, "other")
    s.say("joined", BOB, "hello", "other")
    return s.vector(
        "late-closed-sealed",
        "a sealed request is apart, closed or not: `joined` is late on its branch alone",
        tips=["seal", "seal-other"],
        answers={"ask": "answer", "other": None},
        tails=[
            tail("seal", [], ["answer"]),
            tail("seal-other", ["joined"], ["cancel", "joined"]),
        ],
    )


def _behind_listed() -> dict[str, object]:
    s = History()
    s.ask("early", CAT, "genesis", conflict=FORK)
    s.say("hello", ADA, "early")
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.say("beside", BOB, "hello")
    return s.vector(
        "late-behind-listed",
        "`early` was void when the chain passed over it, and is apart now: what a listed entry"
        " reaches does not keep a message out",
        tips=["seal"],
        answers={"ask": None, "early": None},
        tails=[tail("seal", ["beside"], ["ask", "beside"])],
    )


def _void_waits() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("of-eve", EVE, "ask")
    s.write("tools", BOB, TOOLS, b"", parents=["of-eve"])
    return s.vector(
        "waiting-void",
        "a void request waits for nothing: what follows it is in the tail",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["tools"], ["answer", "tools"])],
    )


CASES = (
    _late, _unanswered, _branches, _first_seal, _apart, _behind_start, _kinds, _passed_over,
    _side_answer, _listed_request, _void_seal, _two_branches, _joined, _no_tip,
    _closed, _closed_sealed, _behind_listed, _void_waits,
)  # fmt: skip
