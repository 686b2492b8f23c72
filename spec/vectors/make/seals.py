"""Cases of order.json about seals: void ones, and those that a revocation leaves."""

from spec.vectors.make.build import FORK, HOST
from spec.vectors.make.history import ADA, BEA, BOB, EVE, HAL, IDA, History, next_seal


def alone() -> dict[str, object]:
    """Seals that break a rule of their own."""
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.ask("ask-eve", EVE, "hello")
    s.ask("ask-bob", ADA, "hello", host=BOB)
    s.seal("parent", "ask", ["hello", "ask"], parents=["hello"], void="PARENT_NOT_REQUEST")
    s.seal("request", "hello", ["hello"], void="REQUEST_INVALID")
    s.seal("named", "ask", ["hello", "ask"], by=IDA, void="HOST_NOT_NAMED")
    s.seal("role", "ask-bob", ["hello", "ask-bob"], by=BOB, void="HOST_NOT_MEMBER")
    s.seal("early", "ask", ["hello", "ask"], heads=["grant-eve"], void="HOST_NOT_MEMBER")
    s.seal("reader", "ask-eve", ["hello", "ask-eve"], void="REQUEST_VOID")
    s.seal("short", "ask", ["ask"], void="COVERAGE_WRONG")
    s.seal("long", "ask", ["hello", "ask", "ask-bob"], void="COVERAGE_WRONG")
    s.seal("swapped", "ask", ["ask", "hello"], void="COVERAGE_WRONG")
    s.seal("digest", "ask", ["hello", "ask"], digest=bytes(32), void="CONTEXT_DIGEST_WRONG")
    s.seal("extends", "ask", ["hello", "ask"], prev_seal="digest", void="PREV_SEAL_VOID")
    s.seal("good", "ask", ["hello", "ask"])
    s.seal("again", "ask", ["hello", "ask"], void="SEALED_BEFORE")
    return s.vector(
        "void",
        "one seal per rule that needs no earlier answer; `early` names membership heads from"
        " before its author was a host; after them the first good one counts",
        tips=["good"],
        answers={"ask": None},
    )


def not_open() -> dict[str, object]:
    """Requests that no host may seal, and one beside them."""
    s = History()
    s.say("hello", ADA)
    s.ask("reader", EVE, "hello", conflict=FORK)
    s.ask("no-host", ADA, "hello", host=BOB, conflict=FORK)
    s.ask("refused", ADA, "hello", conflict=FORK)
    s.answer("refusal", "refused")
    s.ask("sealed", ADA, "hello", conflict=FORK)
    s.seal("seal", "sealed", ["hello", "sealed"])
    s.ask("gone", ADA, "hello", host=IDA, conflict=FORK)
    s.ask("open", ADA, "hello", conflict=FORK)
    s.say("on", ADA, "reader")
    s.revoke("revoke-ida", BEA, IDA, [], parents=s.heads)
    none = dict.fromkeys(("reader", "no-host", "refused", "sealed", "gone"))
    return s.vector(
        "not-open",
        "a void request, one that names no host or one that is revoked, a refused one and a sealed"
        " one get no seal; none of them waits for another, as `open` shows",
        tips=["seal"],
        answers={"sealed": None, "refused": "refusal"},
        sealable={**none, "open": next_seal(None, ["hello", "open"])},
    )


def unreached() -> dict[str, object]:
    """A seal whose first listed entry is a message that its request does not follow."""
    s = History()
    s.say("one", ADA)
    s.say("two", BOB)
    first, then = s.sorted("one", "two")
    s.ask("ask", ADA, then)
    s.seal("more", "ask", [first, then, "ask"], void="COVERAGE_WRONG")
    s.seal("good", "ask", [then, "ask"])
    return s.vector(
        "void-unreached",
        "a first listed entry that is no answer of prev_seal is none of the coverage",
        tips=["good"],
        answers={"ask": None},
    )


def of_prev() -> dict[str, object]:
    """Seals that extend the wrong seal."""
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer", basis="seal")
    s.ask("fork", BOB, "word", basis="seal", conflict=FORK)
    s.ask("queue", ADA, "word", basis="seal")
    s.say("other", BOB)
    s.ask("ask-other", BOB, "other")
    s.seal("seal-other", "ask-other", ["other", "ask-other"])
    s.answer("answer-other", "seal-other")
    s.seal(
        "rootless", "fork", ["hello", "ask", "answer", "word", "fork"], void="BASIS_NOT_EXTENDED"
    )
    s.seal(
        "elsewhere",
        "queue",
        ["answer-other", "hello", "ask", "answer", "word", "queue"],
        prev_seal="seal-other",
        void="BRANCH_NOT_EXTENDED",
    )
    s.ask("queue-2", ADA, "other", basis="seal")
    s.seal("skipped", "queue-2", ["other", "queue-2"], prev_seal="seal", void="ANSWER_SKIPPED")
    s.seal("late", "queue", ["word", "answer", "queue"], prev_seal="seal", void="ANSWER_SKIPPED")
    return s.vector(
        "void-prev",
        "seals that extend the wrong seal, or pass over its answer",
        tips=["seal", "seal-other"],
        answers={"fork": None, "queue": None, "queue-2": None},
    )  # fmt: skip


def of_basis() -> dict[str, object]:
    """A seal behind a void one."""
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal(
        "bad",
        "more",
        ["answer", "more"],
        prev_seal="seal",
        digest=bytes(32),
        void="CONTEXT_DIGEST_WRONG",
    )
    s.answer("lost", "bad")
    s.ask("after", ADA, "lost", basis="bad")
    s.seal("seal-2", "after", ["answer", "more", "after"], prev_seal="seal")
    return s.vector(
        "void-basis",
        "a void basis resolves to the nearest valid seal it extends; the answer to a void seal is"
        " passed through, not listed",
        tips=["seal-2"],
        answers={"more": None, "after": None},
    )  # fmt: skip


def foreign_answer() -> dict[str, object]:
    """A generation of a host that did not seal."""
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("foreign", "seal", by=IDA)
    s.ask("more", ADA, "foreign", basis="seal", host=IDA, conflict=FORK)
    s.seal("greedy", "more", ["foreign", "more"], prev_seal="seal", by=IDA, void="COVERAGE_WRONG")
    s.seal("seal-2", "more", ["more"], prev_seal="seal", by=IDA)
    return s.vector(
        "foreign-answer",
        "only the host that sealed answers; another host's generation is no context",
        tips=["seal-2"],
        answers={"ask": None, "more": None},
    )


def sealed_twice() -> dict[str, object]:
    """Two seals of one request."""
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.say("later", ADA, "ask")
    s.seal("first", "ask", ["hello", "ask"])
    s.answer("answer", "first")
    s.seal("second", "ask", ["hello", "ask"], epoch=2, basis="first", void="SEALED_BEFORE")
    s.answer("answer-2", "second", epoch=2)
    s.ask("more", ADA, "answer-2", basis="second", conflict=FORK)
    s.seal("seal-2", "more", ["more"], prev_seal="second", void="PREV_SEAL_VOID")
    return s.vector(
        "sealed-twice",
        "a host that lost its memory seals a request again in a new epoch: the seal first in"
        " (lamport, id) order counts, whichever comes first, and what stands on the other is void",
        tips=["first"],
        answers={"ask": "answer", "more": None},
        sealable={"more": next_seal(None, ["hello", "ask", "more"])},
    )


def revoked_host() -> dict[str, object]:
    """Seals of a host that is revoked."""
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.ask("third", ADA, "answer-2", basis="seal-2")
    s.seal("seal-3", "third", ["answer-2", "third"], prev_seal="seal-2", covered=False)
    s.revoke("revoke-hal", BEA, HAL, ["answer"], parents=s.heads)
    return s.vector(
        "revoked-host",
        "behind the cut: `seal-2` stays, since a valid request follows its answer; `seal-3` is no"
        " longer covered and plays no part",
        tips=["seal-2"],
        answers={"ask": "answer", "more": "answer-2", "third": None},
    )


def revoked_writer() -> dict[str, object]:
    """Seals of what a revoked writer said."""
    s = History()
    s.say("hello", BOB)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.say("more", BOB, "answer", basis="seal")
    s.ask("ask-2", ADA, "more", basis="seal")
    s.revoke("revoke-bob", ADA, BOB, [], parents=s.heads)
    s.heads = ["revoke-bob"]
    s.seal("seal-2", "ask-2", ["answer", "ask-2"], prev_seal="seal")
    return s.vector(
        "revoked-writer",
        "what a seal listed stays; a seal judged by the revocation lists nothing more of the key",
        tips=["seal-2"],
        answers={"ask": "answer", "ask-2": None},
    )


def membership_heads() -> dict[str, object]:
    """Seals judged by the membership heads they name."""
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.ask("ask-bob", ADA, "hello", host=BOB)
    s.grant("host-bob", BEA, BOB, HOST)
    s.revoke("revoke-bea", ADA, BEA, ["host-bob"])
    s.seal("by-prev", "ask", ["hello", "ask"], heads=["revoke-bea"])
    cut = ["revoke-bea"]
    s.seal("by-cut", "ask-bob", ["hello", "ask-bob"], by=BOB, heads=cut, void="HOST_NOT_MEMBER")
    named = ["host-bob", "revoke-bea"]
    s.seal("named", "ask-bob", ["hello", "ask-bob"], by=BOB, heads=named)
    return s.vector(
        "membership-heads",
        "membership heads reach through parents and prev: `revoke-bea` follows the genesis, and"
        " the grant to hal by prev; `host-bob`, which its cut keeps, has to be named itself",
        tips=["by-prev", "named"],
        answers={"ask": None, "ask-bob": None},
    )
