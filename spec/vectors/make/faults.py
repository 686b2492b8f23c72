"""Cases of order.json about seals with two faults, and about whom a CANCEL closes (ORD-7)."""

from spec.vectors.make.build import CANCEL, FORK, OWNER, WRITER
from spec.vectors.make.history import ADA, BEA, BOB, CAT, EVE, HAL, IDA, History, next_seal, tail


def _two_faults() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("of-eve", EVE, "hello")
    s.ask("of-eve-bob", EVE, "hello", host=BOB)
    s.ask("queue", ADA, "answer", basis="seal")
    s.ask("fork", ADA, "ask", basis="seal", conflict=FORK)
    s.ask("rootless", BOB, "hello", conflict=FORK)
    s.seal("seal-rootless", "rootless", ["hello", "rootless"])
    s.seal("bad", "queue", ["answer"], prev_seal="seal", void="COVERAGE_WRONG")
    hello = ["hello"]
    s.seal("1-2", "hello", hello, parents=["ask"], void="PARENT_NOT_REQUEST")
    s.seal("3-4", "ask", hello, by=BOB, void="HOST_NOT_NAMED")
    s.seal("4-5", "of-eve-bob", hello, by=BOB, void="HOST_NOT_MEMBER")
    s.seal("5-6", "of-eve", hello, prev_seal="bad", void="REQUEST_VOID")
    s.seal("6-7-fork", "fork", hello, prev_seal="bad", void="PREV_SEAL_VOID")
    s.seal("6-7", "queue", hello, prev_seal="bad", void="PREV_SEAL_VOID")
    skips = "BRANCH_NOT_EXTENDED"
    s.seal("7-7", "queue", hello, prev_seal="seal-rootless", void=skips)
    s.seal("7-8", "ask", hello, prev_seal="seal", void="ANSWER_SKIPPED")
    s.seal("7-8-fork", "rootless", hello, prev_seal="seal", void="BASIS_NOT_EXTENDED")
    s.seal("7-9", "queue", hello, prev_seal="seal", void="ANSWER_SKIPPED")
    s.seal("8-9", "ask", hello, void="SEALED_BEFORE")
    s.seal("9-10", "queue", ["answer"], prev_seal="seal", digest=bytes(32), void="COVERAGE_WRONG")
    s.seal("adds", "fork", ["answer", "fork"], prev_seal="seal", void="COVERAGE_WRONG")
    return s.vector(
        "two-faults",
        "seals that break two rules, named by their steps, are void for the first; a request that"
        " forks and does not follow the answer leaves it out (`adds`)",
        tips=["seal", "seal-rootless"],
        answers={"ask": "answer", "queue": None, "fork": None},
    )


def _first_listed() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("foreign", "seal", by=IDA)
    s.ask("more", ADA, "foreign", basis="seal")
    listed = ["foreign", "more"]
    s.seal("of-foreign", "more", listed, prev_seal="seal", void="COVERAGE_WRONG")
    s.answer("answer", "seal")
    s.revoke("revoke-hal", BEA, HAL, ["seal"], parents=s.heads)
    s.heads = ["revoke-hal"]
    s.ask("then", ADA, "answer", basis="seal", host=IDA)
    s.seal("of-void", "then", ["answer", "then"], prev_seal="seal", by=IDA, void="COVERAGE_WRONG")
    return s.vector(
        "first-listed",
        "the first entry that a seal lists may be another host's generation, or a void one: the"
        " answer is not skipped then, yet coverage does not list it",
        tips=["seal"],
        answers={"ask": "answer", "more": None, "then": None},
    )


def _refusal_void() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello", host=BOB)
    s.answer("refusal", "ask", by=BOB)
    s.ask("of-hal", ADA, "hello")
    s.answer("refusal-2", "of-hal")
    s.say("reply", ADA, "refusal-2")
    s.revoke("revoke-hal", BEA, HAL, [], parents=s.heads)
    return s.vector(
        "refusal-void",
        "a refusal counts whatever the roles of the host named, while it is covered: one of a"
        " writer, and one that lies behind a cut and is followed",
        tips=[],
        answers={"ask": "refusal", "of-hal": "refusal-2"},
    )


def _second_answer() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.answer("second", "seal")
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.ask("third", ADA, "answer-2", "second", basis="seal-2")
    s.seal("seal-3", "third", ["answer-2", "second", "third"], prev_seal="seal-2")
    return s.vector(
        "second-answer",
        "a later answer of an older seal is listed where the request follows it",
        tips=["seal-3"],
        answers={"ask": "answer", "more": "answer-2", "third": None},
    )


def _closed_then() -> dict[str, object]:
    s = History()
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.cancel("cancel-bob", BOB, "ask")
    s.cancel("cancel-cat", CAT, "ask")
    s.ask("behind-bob", ADA, "cancel-bob", basis="seal")
    s.ask("behind-cat", ADA, "cancel-cat", basis="seal")
    s.grant("owner-cat", ADA, CAT, OWNER, parents=s.heads)
    s.revoke("revoke-bob", ADA, BOB, ["ask"], parents=["owner-cat"])
    new, skipped = ["revoke-bob"], "ANSWER_SKIPPED"
    for name, then, now in (("bob", s.heads, new), ("cat", new, s.heads)):
        asked = f"behind-{name}"
        s.seal(f"wrong-{name}", asked, [asked], prev_seal="seal", heads=now, void=skipped)
        s.seal(f"seal-{name}", asked, [asked], prev_seal="seal", heads=then)
    return s.vector(
        "closed-then",
        "whether a CANCEL closes is judged by the membership heads that the seal names: bob is"
        " revoked since, and cat an owner",
        tips=s.sorted("seal-bob", "seal-cat"),
        answers={"ask": None},
    )


def _closed_fork() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.write("cancel", BOB, CANCEL, b"", parents=["ask"])
    s.say("twin", BOB, "ask", prev="ask")
    s.ask("over", ADA, "cancel", "twin", basis="seal")
    s.seal("seal-2", "over", ["over"], prev_seal="seal")
    return s.vector(
        "closed-fork",
        "a CANCEL closes for a request that reaches it, though its lane is forked there: what is"
        " dropped is not listed, and was reached",
        tips=["seal-2"],
        answers={"ask": None, "over": None},
    )


def _closed_listed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.cancel("cancel", ADA, "ask")
    s.ask("more", ADA, "cancel", basis="seal")
    return s.vector(
        "closed-and-answered",
        "a host that holds the answer lists it, though the request is closed for the next one",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={"more": next_seal("seal", ["answer", "more"])},
    ) | {"requirements": ["ORD-11"]}


def _latest() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    for side in ("left", "right"):
        s.ask(side, ADA, "hello", conflict=FORK)
        s.seal(f"seal-{side}", side, ["hello", side])
    s.answer("left-1", "seal-left")
    s.answer("right-1", "seal-right")
    s.answer("left-2", "seal-left")
    assert s.sorted("left-2", "right-1", "left-1")[::2] == ["left-1", "left-2"]
    return s.vector(
        "latest-answer",
        "a branch is as late as its answer, which is the first of several",
        tips=["seal-left", "seal-right"],
        answers={"left": "left-1", "right": "right-1"},
    )


def _tie() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    for epoch, side in enumerate(("left", "right"), 2):
        s.ask(side, ADA, "hello", conflict=FORK, epoch=epoch)
        s.seal(f"seal-{side}", side, ["hello", side], epoch=epoch)
    first, then = s.sorted("seal-left", "seal-right")
    s.answer("late", first, epoch=9)
    epochs = iter(range(10, 99))  # one of them gives an id that is less
    while "early" not in s.entries or s.sorted("early", "late")[0] == "late":
        s.entries.pop("early", None)
        s.answer("early", then, epoch=next(epochs))
    return s.vector(
        "latest-of-equals",
        "of two branches with answers of one lamport the greater id of these is the later",
        tips=[then, first],
        answers={},
    )


def _void_twice() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("bad", "more", ["more"], prev_seal="seal", void="ANSWER_SKIPPED")
    s.seal("worse", "more", ["more"], prev_seal="bad", void="PREV_SEAL_VOID")
    s.ask("after", ADA, "answer", basis="worse", conflict=FORK)
    s.seal("seal-2", "after", ["answer", "after"], prev_seal="seal")
    return s.vector(
        "void-basis-twice",
        "a basis resolves through any number of void seals",
        tips=["seal-2"],
        answers={"after": None},
    )


def _by_basis() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("on", ADA, "hello", basis="seal")
    s.revoke("revoke-hal", BEA, HAL, [], parents=s.heads)
    s.heads = ["revoke-hal"]
    return s.vector(
        "covered-by-basis",
        "the seal of a revoked host is covered by the entry whose basis it is, and counts; its"
        " answer is not covered",
        tips=["seal"],
        answers={"ask": None},
    ) | {"requirements": ["ORD-8", "ORD-13"]}


def _other_tracks() -> dict[str, object]:
    s = History()
    for track in (2, 3):
        s.write(f"join-{track}", ADA, 13, b"", parents=["genesis"], track=track)
    return s.vector(
        "other-tracks",
        "JOINs on the document and the membership track are in no tail",
        tips=[],
        answers={},
        tails=[tail(None, [], ["genesis"])],
    )


def _beside_seal() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.say("beside", BOB, "seal")
    s.ask("more", BOB, "beside", basis="seal")
    s.seal("skips", "more", ["beside", "more"], prev_seal="seal", void="ANSWER_SKIPPED")
    return s.vector(
        "beside-seal",
        "a message whose only parent is the seal is no answer of it",
        tips=["seal"],
        answers={"ask": None, "more": None},
        sealable={"more": None},
    )


def _seal_of_no_seal() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("odd", "ask", ["ask"], prev_seal="hello", void="PREV_SEAL_VOID")
    s.ask("more", BOB, "ask", basis="odd")
    s.ask("fork", BOB, "ask", basis="odd", conflict=FORK)
    s.seal("seal", "more", ["hello", "ask", "more"])
    return s.vector(
        "basis-of-no-seal",
        "a seal that extends a message is void, and as a basis resolves to none",
        tips=["seal"],
        answers={"more": None},
        sealable={"fork": next_seal(None, ["hello", "ask", "fork"])},
    )


def _kept_cancel() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.cancel("cancel-bea", BEA, "ask")
    s.revoke("revoke-bea", ADA, BEA, ["cancel-bea"], parents=s.heads)
    s.heads = ["revoke-bea"]
    return s.vector(
        "kept-cancel",
        "what an owner cancelled stays cancelled where a later revocation keeps the CANCEL",
        tips=["seal"],
        answers={"ask": None},
        tails=[tail("seal", [], ["cancel-bea"])],
    )


CASES = (
    _two_faults, _first_listed, _refusal_void, _second_answer, _closed_then, _closed_fork,
    _closed_listed, _latest, _tie, _void_twice, _by_basis, _other_tracks,
    _beside_seal, _seal_of_no_seal, _kept_cancel,
)  # fmt: skip
