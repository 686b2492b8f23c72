"""order.json: which seals count, what the context is, what waits (spec/03-order §3, §4)."""

from spec.vectors.make import (
    beside,
    bodies,
    cancels,
    ends,
    faults,
    frontiers,
    judged,
    late,
    queued,
    readings,
    seals,
    settled,
    turns,
    withdrawn,
)
from spec.vectors.make.build import FORK, MESSAGE
from spec.vectors.make.history import ADA, BOB, EVE, IDA, History, next_seal, tail


def _chain() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("thanks", ADA, "answer", basis="seal")
    s.ask("more", ADA, "thanks", basis="seal")
    s.seal("seal-2", "more", ["answer", "thanks", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    return s.vector(
        "chain",
        "two turns; the second seal lists the first answer and what followed it",
        tips=["seal-2"],
        answers={"ask": "answer", "more": "answer-2"},
        tails=[tail("seal-2", [], ["answer-2"])],
    )


def _unanswered() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.ask("ask-2", BOB, "hello", conflict=FORK)
    s.seal("seal", "ask", ["hello", "ask"])
    s.ask("next", ADA, "ask", basis="seal")
    s.ask("queued", BOB, "hello")
    return s.vector(
        "waiting",
        "a request on a seal without an answer waits; one beside it does not, unless it queues",
        tips=["seal"],
        answers={"ask": None, "ask-2": None},
        sealable={"ask-2": next_seal(None, ["hello", "ask-2"]), "next": None, "queued": None},
    )


def _fork() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("left", ADA, "answer", basis="seal", conflict=FORK)
    s.ask("right", BOB, "answer", basis="seal", conflict=FORK)
    s.seal("seal-left", "left", ["answer", "left"], prev_seal="seal")
    s.answer("answer-left", "seal-left")
    s.seal("seal-right", "right", ["answer", "right"], prev_seal="seal")
    s.answer("answer-right", "seal-right")
    return s.vector(
        "fork",
        "two requests on one seal make two branches; the one with the latest activity is last",
        tips=["seal-left", "seal-right"],
        answers={"left": "answer-left", "right": "answer-right"},
    )


def _queue() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("left", ADA, "answer", basis="seal")
    s.say("word", BOB, "answer", basis="seal")
    s.ask("queued", BOB, "word", basis="seal")
    s.ask("queued-2", ADA, "answer", basis="seal")
    s.seal("seal-left", "left", ["answer", "left"], prev_seal="seal")
    s.answer("answer-left", "seal-left")
    s.seal("seal-2", "queued", ["answer-left", "word", "queued"], prev_seal="seal-left")
    s.answer("answer-2", "seal-2")
    return s.vector(
        "queue",
        "a queued request goes after the branch's last answer, which its seal takes in first",
        tips=["seal-2"],
        answers={"left": "answer-left", "queued": "answer-2", "queued-2": None},
        sealable={"queued-2": next_seal("seal-2", ["answer-2", "queued-2"])},
    )


def _typed_over() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", ADA, "ask", basis="seal")
    s.ask("fork", ADA, "wait", basis="seal", conflict=FORK)
    s.ask("queue", ADA, "wait", basis="seal")
    s.seal("seal-fork", "fork", ["wait", "fork"], prev_seal="seal")
    return s.vector(
        "typed-over",
        "typed before the answer came: a fork leaves the answer out, a queued request takes it in;"
        " `queue` does not go on behind the fork, which is a branch beside the answer",
        tips=["seal-fork"],
        answers={"fork": None, "queue": None},
        sealable={"queue": next_seal("seal", ["answer", "wait", "queue"])},
    )


def _typed_over_queue() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", ADA, "ask", basis="seal")
    s.ask("queue", ADA, "wait", basis="seal")
    s.seal("seal-2", "queue", ["answer", "wait", "queue"], prev_seal="seal")
    return s.vector(
        "typed-over-queue",
        "typed before the answer came, and queued: the answer comes first",
        tips=["seal-2"],
        answers={"queue": None},
    )


def _answer_first() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", ADA, "ask")
    s.ask("both", ADA, "wait", "answer", basis="seal", conflict=FORK)
    s.seal(
        "by-lamport",
        "both",
        s.sorted("wait", "answer", "both"),
        prev_seal="seal",
        void="COVERAGE_WRONG",
    )
    s.seal("seal-2", "both", ["answer", "wait", "both"], prev_seal="seal")
    early = [s.entries[n].header.lamport for n in ("wait", "answer")]
    assert early[0] < early[1]
    return s.vector(
        "answer-first",
        "the answer of the seal extended comes first, though `wait` has a smaller lamport: its"
        " tokens follow the seal's in the model's memory",
        tips=["seal-2"],
        answers={"both": None},
    )  # fmt: skip


def _regenerate() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("thanks", ADA, "answer", basis="seal")
    s.ask("more", ADA, "thanks", basis="seal")
    s.seal("seal-2", "more", ["answer", "thanks", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.ask("again", ADA, "thanks", basis="seal", conflict=FORK)
    s.seal("seal-again", "again", ["answer", "thanks", "again"], prev_seal="seal")
    s.say("hello-edited", ADA)
    s.ask("ask-edited", ADA, "hello-edited", conflict=FORK)
    s.seal("seal-edited", "ask-edited", ["hello-edited", "ask-edited"])
    return s.vector(
        "regenerate-edit",
        "another answer: a new request that follows the same message, on the older seal;"
        " an edit: a new message that follows what the old one followed",
        tips=["seal-2", "seal-again", "seal-edited"],
        answers={"more": "answer-2", "again": None, "ask-edited": None},
    )


def _passed_through() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("murmur", EVE, "hello")
    s.write("join", BOB, 13, b"", parents=["murmur"])
    s.write("stop", BOB, 8, b"", parents=["join"])
    s.write("new-kind", BOB, 99, b"", parents=["stop"])
    s.write("garbled", BOB, MESSAGE, b"\xff", parents=["new-kind"])
    s.ask("ask", ADA, "garbled")
    s.seal("seal", "ask", ["hello", "garbled", "ask"])
    return s.vector(
        "passed-through",
        "void entries and kinds without content are followed, not listed; a body that does not"
        " parse plays no part, since others may lack the body",
        tips=["seal"],
        answers={"ask": None},
        tails=[tail("seal", [], ["ask"])],
    )


def _equivocation() -> dict[str, object]:
    s = History()
    s.say("one", BOB)
    s.say("two", BOB, "one")
    s.say("twin", BOB, "one", prev="one")
    s.say("three", BOB, "two", prev="two")
    s.ask("both", ADA, "three", "twin")
    s.seal("seal", "both", ["one", "both"])
    s.ask("half", ADA, "three")
    s.seal("seal-half", "half", ["one", "two", "three", "half"])
    return s.vector(
        "equivocation",
        "where a closure shows a lane's fork, nothing at or behind it is listed; a closure that"
        " holds one side cannot know",
        tips=["seal", "seal-half"],
        answers={"both": None},
    )


def _refusal() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.answer("refusal", "ask")
    s.ask("again", ADA, "refusal", host=IDA)
    s.seal("seal", "again", ["hello", "ask", "again"], by=IDA)
    return s.vector(
        "refusal",
        "a generation on the request itself refuses it: an answer, but no context",
        tips=["seal"],
        answers={"ask": "refusal", "again": None},
    )


def _two_answers() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.answer("second", "seal")
    s.ask("more", ADA, "second", basis="seal")
    s.seal("seal-2", "more", ["second", "more"], prev_seal="seal")
    return s.vector(
        "two-answers",
        "of two generations on one seal the first in (lamport, id) order is the answer; a request"
        " may still follow the other",
        tips=["seal-2"],
        answers={"ask": "answer", "more": None},
    )


def _tails() -> dict[str, object]:
    s = History()
    s.say("aside", BOB)
    s.first_turn()
    s.say("left", ADA, "answer", basis="seal")
    s.say("right", BOB, "answer", basis="seal")
    s.say("murmur", EVE, "answer")
    s.say("both", BOB, "left", "right", basis="seal")
    return s.vector(
        "tail",
        "what follows a tip and is not sealed yet, visible entries only, in (lamport, id) order;"
        " the frontier is what the next entry follows",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[
            tail("seal", s.sorted("aside", "left", "right", "both"), ["aside", "both"]),
            tail(None, ["aside"], ["aside"]),
        ],
    )


def _meanwhile() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", BOB, "ask")
    s.say("and", BOB, "wait")
    s.say("but", ADA, "ask")
    s.ask("ask-but", ADA, "but", basis="seal")
    return s.vector(
        "meanwhile",
        "what was said behind a request while its answer came is in the tail, and followed next;"
        " what a further request asks about is not",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["wait", "and"], ["and", "answer"])],
    )


def _spam() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("thanks", ADA, "answer", basis="seal")
    s.write("new-kind", EVE, 99, b"", parents=["thanks"])
    s.write("join-eve", EVE, 13, b"", parents=["thanks", "answer"])
    s.say("over", ADA, "new-kind", basis="seal")
    s.say("beside", BOB, "answer", basis="seal")
    s.write("join-bob", BOB, 13, b"", parents=["over", "beside"])
    return s.vector(
        "spam",
        "a reader's JOIN and unknown kinds are in no tail; `over` follows `thanks` through one of"
        " them",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted("thanks", "over", "beside", "join-bob"), ["join-bob"])],
    )


def build() -> dict[str, object]:
    """Return the file."""
    cases = (
        _chain, _unanswered, _fork, _queue, _typed_over, _typed_over_queue, _answer_first,
        _regenerate, seals.alone, seals.unreached, seals.of_prev, seals.of_basis, _passed_through,
        _equivocation,
        _refusal, seals.foreign_answer, _two_answers, seals.sealed_twice, seals.revoked_host,
        seals.revoked_writer, _tails, _meanwhile, seals.membership_heads, _spam, cancels.closed,
        cancels.by, cancels.by_former_owner, cancels.by_void_cancel, cancels.answered,
        cancels.void_answer, cancels.of_tail,
        cancels.behind_listed, cancels.dropped_answer, seals.not_open,
        readings.fork_behind_chain, readings.not_beyond_listed, readings.listed_request,
        readings.sealed_elsewhere, readings.follows_both, readings.follows_both_alone,
        readings.nothing_yet, readings.joins, readings.labels, readings.request_behind_fork,
        readings.late_answer, readings.earliest_seal, *turns.CASES, *late.CASES, *faults.CASES,
        *queued.CASES, *withdrawn.CASES, *beside.CASES, *ends.CASES,
        *settled.CASES, *frontiers.CASES, *judged.CASES,
        *bodies.CASES,
    )  # fmt: skip
    return {
        "file": "order",
        "spec": "spec/03-order §3",
        "comment": "Admit all entries, in any order that admission takes. `seals`: counts (with"
        " the seal it extends and its whole context), void (with the rule broken) or uncovered."
        " `tips`: the leaves, latest activity last. `answers`: request to generation. `sealable`:"
        " what the named host may seal next, null while the request waits. `tails`: unsealed"
        " entries after a tip (null: the genesis) and the parents of the next entry.",
        "vectors": [case() for case in cases],
    }
