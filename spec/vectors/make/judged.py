"""Cases of order.json about the steps of judging a seal, and about forked lanes (ORD-6 to 9)."""

from spec.vectors.make.build import CONVERSATION, FORK, GENERATION, JOIN, generation
from spec.vectors.make.history import ADA, BEA, BOB, HAL, IDA, History, next_seal, tail


def _host_cut() -> dict[str, object]:
    s = History()
    s.ask("ask", ADA, "genesis")
    s.revoke("revoke-hal", ADA, HAL, [], parents=s.heads)
    s.seal("seal", "ask", ["ask"], heads=["revoke-hal"], void="HOST_NOT_MEMBER")
    s.say("reply", ADA, "seal")
    return s.vector(
        "host-cut-by-named-heads",
        "the seal names a revocation of its host as membership head: a host that a cut leaves out"
        " is none, though it has the role",
        tips=[],
        answers={"ask": None},
        sealable={"ask": None},
    ) | {"requirements": ["ORD-7"]}


def _other_branch() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("other", BOB, "genesis")
    s.seal("seal-other", "other", ["other"])
    s.seal("seal-again", "other", ["answer", "other"], prev_seal="seal", void="SEALED_BEFORE")
    s.say("reply", BEA, "seal-again")
    return s.vector(
        "sealed-on-another-branch",
        "a request has one seal that counts, of whatever branch",
        tips=["seal", "seal-other"],
        answers={"ask": "answer", "other": None},
        tails=[tail("seal", [], ["answer"]), tail("seal-other", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-7"]}


def _equal_lamports() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal-b", "ask", ["hello", "ask"], void="SEALED_BEFORE")
    s.seal("seal-a", "ask", ["hello", "ask"], epoch=2)
    s.say("reply", BEA, "seal-a", "seal-b")
    assert s.sorted("seal-a", "seal-b") == ["seal-a", "seal-b"]
    assert len({s.entries[n].header.lamport for n in ("seal-a", "seal-b")}) == 1
    return s.vector(
        "sealed-twice-equal-lamports",
        "of two seals with one lamport, in two lanes of the host, that of the lesser id counts",
        tips=["seal-a"],
        answers={"ask": None},
        tails=[tail("seal-a", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-7", "ORD-8"]}


def _forked_lane() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal-then", "ask", ["hello", "ask"], void="SEALED_BEFORE")
    s.seal("seal-one", "ask", ["hello", "ask"], prev=None)
    s.say("reply", BEA, "seal-then")
    assert s.sorted("seal-one", "seal-then") == ["seal-one", "seal-then"]
    return s.vector(
        "sealed-twice-at-one-position",
        "a host forked its lane: of two seals at one position the first in order(x) counts",
        tips=["seal-one"],
        answers={"ask": None},
        tails=[tail("seal-one", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-7", "ORD-8"]}


def _two_parents() -> dict[str, object]:
    s = History()
    s.ask("ask", ADA, "genesis")
    s.say("word", BOB)
    s.seal("seal", "ask", ["ask"], parents=["ask", "word"], void="PARENT_NOT_REQUEST")
    s.say("reply", BEA, "seal")
    return s.vector(
        "seal-with-two-parents",
        "a seal that follows its request and something else is void",
        tips=[],
        answers={"ask": None},
        sealable={"ask": next_seal(None, ["ask"])},
        tails=[tail(None, s.sorted("ask", "word"), ["ask", "word"])],
    ) | {"requirements": ["ORD-7"]}


def _answer_of_two() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("of-two", HAL, GENERATION, generation("x"), parents=["seal", "ask"])
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["of-two", "answer", "more"], prev_seal="seal", void="ANSWER_SKIPPED")
    s.say("reply", BEA, "seal-2")
    return s.vector(
        "answer-with-two-parents",
        "a GENERATION that follows the seal and something else is no answer, and a seal that lists"
        " it first skips the answer",
        tips=["seal"],
        answers={"ask": "answer", "more": None},
        sealable={"more": next_seal("seal", ["answer", "more"])},
        tails=[tail("seal", s.sorted("more", "of-two", "reply"), ["of-two", "reply"])],
    ) | {"requirements": ["ORD-7", "ORD-9"]}


def _unreadable_answer() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.write("answer", HAL, GENERATION, b"\xff", parents=["seal"])
    s.ask("more", BEA, "answer", basis="seal")
    return s.vector(
        "answer-unreadable",
        "an answer whose body does not parse is the answer: others may lack the body",
        tips=["seal"],
        answers={"ask": "answer", "more": None},
        sealable={"more": next_seal("seal", ["answer", "more"])},
        tails=[tail("seal", ["more"], ["more"])],
    ) | {"requirements": ["ORD-9", "ENT-7"]}


def _refusals() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello", conflict=FORK)
    s.answer("by-ida", "ask", by=IDA)
    s.ask("sealed", BEA, "hello")
    s.seal("seal", "sealed", ["hello", "sealed"])
    s.answer("refusal", "sealed")
    s.say("reply", BEA, "refusal")
    return s.vector(
        "refusals-without-effect",
        "another host's GENERATION on a request refuses nothing, nor does the named host's on a"
        " request that has a seal",
        tips=["seal"],
        answers={"ask": None, "sealed": None},
        sealable={"ask": next_seal(None, ["hello", "ask"])},
        tails=[tail("seal", ["refusal", "reply"], ["reply"])],
    ) | {"requirements": ["ORD-9", "ORD-11"]}


def _answers_fork() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.answer("twin", "seal", prev="seal")
    second = s.sorted("answer", "twin")[1]
    s.ask("more", ADA, second, basis="seal")
    s.cancel("cancel", ADA, "ask")
    s.ask("closed", ADA, second, "cancel", basis="seal")
    return s.vector(
        "fork-of-answers",
        "both answers of the seal stand at one position: whoever follows the other one has the"
        " first in C besides, so neither is listed, and the request waits; `closed` goes on without"
        " the first, and lists the other",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={"more": None, "closed": next_seal("seal", ["twin", "closed"])},
        tails=[tail("seal", [], ["answer"])],
    ) | {"requirements": ["ORD-6", "ORD-11"]}


def _void_twin() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.say("word", BOB, "hello")
    s.write("twin", BOB, 9, b"", parents=["hello"], prev="hello")
    s.ask("ask", ADA, "word", "twin")
    s.say("murmur", BEA)
    s.say("words", BEA, "murmur")
    s.write("join", BEA, JOIN, b"", parents=["murmur"], prev="murmur")
    s.ask("other", ADA, "words", "join")
    return s.vector(
        "fork-with-void-twin",
        "a lane forks where two entries stand at one position, also where one is void, or of no"
        " context kind",
        tips=[],
        answers={},
        sealable={
            "ask": next_seal(None, ["hello", "ask"]),
            "other": next_seal(None, ["murmur", "other"]),
        },
    ) | {"requirements": ["ORD-6"]}


def _withdrawn_twin() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.say("word", BOB, "hello")
    s.say("twin", BOB, "hello", prev="hello")
    s.cancel("cancel", BOB, "twin", epoch=2)
    s.ask("ask", ADA, "word", "cancel")
    return s.vector(
        "fork-with-withdrawn-twin",
        "a lane forks at a message that was withdrawn, too",
        tips=[],
        answers={},
        sealable={"ask": next_seal(None, ["hello", "ask"])},
    ) | {"requirements": ["ORD-6"]}


def _other_epoch() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.say("word", BOB, "hello")
    s.say("twin", BOB, "hello", prev="hello")
    s.say("anew", BOB, "word", "twin", epoch=2)
    s.say("more", BOB, "anew", epoch=2)
    s.say("most", BOB, "more", epoch=2)
    s.ask("ask", ADA, "most")
    return s.vector(
        "fork-in-one-epoch",
        "a lane is of one epoch: what its author writes in another one stays",
        tips=[],
        answers={},
        sealable={"ask": next_seal(None, ["hello", "anew", "more", "most", "ask"])},
    ) | {"requirements": ["ORD-6"]}


def _large_lamports() -> dict[str, object]:
    s = History()
    last = "genesis"
    for number in range(258):
        s.write(f"join-{number}", ADA, JOIN, b"", parents=[last], track=CONVERSATION)
        last = f"join-{number}"
    s.say("late", BOB, last)
    s.say("early", BEA, "join-2")
    s.ask("ask", ADA, "late", "early")
    return s.vector(
        "lamports-above-255",
        "lamports are compared as numbers: 4 comes before 259",
        tips=[],
        answers={},
        sealable={"ask": next_seal(None, ["early", "late", "ask"])},
    ) | {"requirements": ["CONV-2", "ORD-6"]}


CASES = (
    _host_cut, _other_branch, _equal_lamports, _forked_lane, _two_parents, _answer_of_two,
    _unreadable_answer, _refusals, _answers_fork, _void_twin, _withdrawn_twin, _other_epoch,
    _large_lamports,
)  # fmt: skip
