"""Cases of order.json, one for each wrong reading of ORD-6 and ORD-10."""

from spec.vectors.make.build import FORK, MESSAGE, READER, WRITER, one_field, said
from spec.vectors.make.history import ADA, BOB, CAT, HAL, IDA, History, next_seal, tail


def fork_behind_chain() -> dict[str, object]:
    s = History()
    s.say("one", BOB)
    s.say("two", BOB, "one")
    s.ask("ask", ADA, "two")
    s.seal("seal", "ask", ["one", "two", "ask"])
    s.answer("answer", "seal")
    s.say("twin", BOB, "answer", prev="one")
    s.say("after", BOB, "twin", prev="twin")
    s.ask("more", ADA, "after", basis="seal")
    s.seal("dropped", "more", ["answer", "more"], prev_seal="seal", void="COVERAGE_WRONG")
    s.seal("seal-2", "more", ["answer", "twin", "after", "more"], prev_seal="seal")
    return s.vector(
        "fork-behind-chain",
        "the chain lists one side of a forked lane, and a request follows the other: only what the"
        " chain does not list decides which lanes are forked, so the other side is listed",
        tips=["seal-2"],
        answers={"ask": "answer", "more": None},
    )


def not_beyond_listed() -> dict[str, object]:
    s = History()
    s.say("early", CAT)
    s.say("hello", ADA, "early")
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.ask("more", ADA, "answer", basis="seal")
    late = ["answer", "early", "more"]
    s.seal("caught-up", "more", late, prev_seal="seal", void="COVERAGE_WRONG")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.ask("again", ADA, "early", "answer", basis="seal", conflict=FORK)
    return s.vector(
        "not-beyond-listed",
        "`early` was void when the chain passed over it, and is visible now: the walk ends at"
        " listed entries, so it stays out; `again` reaches it by another way",
        tips=["seal-2"],
        answers={"ask": "answer", "more": None, "again": None},
        sealable={"again": next_seal("seal", ["answer", "early", "again"])},
    )


def listed_request() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("first", BOB, "hello", host=IDA)
    s.ask("ask", ADA, "first")
    s.seal("seal", "ask", ["hello", "first", "ask"])
    s.answer("answer", "seal")
    twice = ["answer", "first"]
    s.seal("twice", "first", twice, prev_seal="seal", by=IDA, void="COVERAGE_WRONG")
    s.seal("seal-2", "first", ["answer"], prev_seal="seal", by=IDA)
    s.answer("answer-2", "seal-2", by=IDA)
    return s.vector(
        "listed-request",
        "`ask` follows a request to another host, which is still open: the chain lists that one,"
        " so its own seal does not list it again",
        tips=["seal-2"],
        answers={"ask": "answer", "first": "answer-2"},
    )


def sealed_elsewhere() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("left", ADA, "answer", basis="seal", conflict=FORK)
    s.seal("seal-left", "left", ["answer", "left"], prev_seal="seal")
    s.answer("answer-left", "seal-left")
    s.say("word", BOB, "answer-left", basis="seal-left")
    s.ask("right", BOB, "word", basis="seal", conflict=FORK)
    listed = ["answer", *s.sorted("left", "answer-left", "word", "right")]
    s.seal("seal-right", "right", listed, prev_seal="seal")
    return s.vector(
        "sealed-elsewhere",
        "an entry that a counting seal of any branch lists is sealed: `word` is in no tail",
        tips=["seal-left", "seal-right"],
        answers={"left": "answer-left", "right": None},
        tails=[tail("seal-left", [], ["answer-left"]), tail("seal-right", [], ["right"])],
    )


def follows_both() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", BOB, "ask")
    s.ask("asked", BOB, "wait", basis="seal")
    s.say("behind", BOB, "asked")
    s.say("also", ADA, "wait")
    s.ask("both", ADA, "answer", "wait", basis="seal", host=IDA)
    return s.vector(
        "follows-both",
        "`asked` waits for the answer, so it, what it follows and what follows it are left out;"
        " `both` follows the answer and does not wait; `also` is neither before nor behind `asked`",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted("also", "both"), ["also", "both"])],
    )


def follows_both_alone() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("wait", BOB, "ask")
    s.say("also", ADA, "wait")
    s.ask("both", ADA, "answer", "wait", basis="seal")
    return s.vector(
        "follows-both-alone",
        "a request that follows the answer leaves nothing out of the tail",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted("wait", "also", "both"), ["also", "both"])],
    )


def nothing_yet() -> dict[str, object]:
    s = History()
    return s.vector(
        "nothing-yet",
        "without tip and tail the next entry follows the genesis: a frontier is never empty",
        tips=[],
        answers={},
        tails=[tail(None, [], ["genesis"])],
    )


def labels() -> dict[str, object]:
    s = History()
    s.first_turn()
    for name, label in (("full", "\u00e9" * 32), ("long", "\u00e9" * 32 + "x")):
        content = said(name) + one_field(4, label.encode())
        s.write(name, BOB, MESSAGE, content, parents=["answer"], basis="seal")
    return s.vector(
        "labels",
        "a message with a label of 64 bytes, in 32 characters, is in the tail; one of 65 is void",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", ["full"], ["full"])],
    )


def joins() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("left", ADA, "answer", basis="seal")
    s.say("right", BOB, "answer", basis="seal")
    s.write("join-ada", ADA, 13, b"", parents=["left", "right"])
    s.write("join-hal", HAL, 13, b"", parents=["left", "right"])
    return s.vector(
        "joins",
        "a JOIN of an owner is in the tail as that of a writer is, one of a host is not",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted("left", "right", "join-ada"), ["join-ada"])],
    )


def request_behind_fork() -> dict[str, object]:
    """Write a request in a lane that its closure shows forked."""
    s = History()
    s.say("one", BOB)
    s.say("two", BOB, "one")
    s.say("twin", BOB, "one", prev="one")
    s.ask("ask", BOB, "two", "twin", prev="two")
    s.seal("seal", "ask", ["one", "ask"])
    return s.vector(
        "request-behind-fork",
        "the request stays in its own context, though its lane is dropped from the fork on",
        tips=["seal"],
        answers={"ask": None},
    )


def late_answer() -> dict[str, object]:
    """Write two branches, of which the one that was sealed first is answered last."""
    s = History()
    s.say("hello", ADA)
    s.ask("left", ADA, "hello", conflict=FORK)
    s.ask("right", BOB, "hello", conflict=FORK)
    s.seal("seal-left", "left", ["hello", "left"])
    s.seal("seal-right", "right", ["hello", "right"])
    s.answer("answer-right", "seal-right")
    s.answer("answer-left", "seal-left")
    assert s.sorted("answer-left", "seal-right", "seal-left")[::2] == ["seal-left", "answer-left"]
    s.ask("queued", BOB, "hello")
    return s.vector(
        "late-answer",
        "a branch with an answer is as late as that, not as its seal; a queued request goes behind"
        " the seal that is the earliest, whichever was answered first",
        tips=["seal-right", "seal-left"],
        answers={"left": "answer-left", "right": "answer-right"},
        sealable={"queued": next_seal("seal-left", ["answer-left", "queued"])},
    )


def earliest_seal() -> dict[str, object]:
    """Write two branches, of which the one that was asked for first is sealed last."""
    s = History()
    s.say("hello", ADA)
    s.ask("left", ADA, "hello", conflict=FORK)
    s.say("word", BOB, "hello")
    s.ask("right", BOB, "word", conflict=FORK)
    s.seal("seal-right", "right", ["hello", "word", "right"])
    for number in range(6):
        s.grant(f"grant-{number}", ADA, CAT, READER, parents=s.heads)
        s.heads = [f"grant-{number}"]
    s.seal("seal-left", "left", ["hello", "left"])
    assert s.sorted("left", "right", "seal-right", "seal-left")[::3] == ["left", "seal-left"]
    for side in ("left", "right"):
        s.answer(f"answer-{side}", f"seal-{side}")
    s.ask("queued", BOB, "hello")
    return s.vector(
        "earliest-seal",
        "a queued request goes behind the child whose seal is the earliest, not the one whose"
        " request is",
        tips=["seal-left", "seal-right"],
        answers={"left": "answer-left", "right": "answer-right"},
        sealable={"queued": next_seal("seal-right", ["answer-right", "queued"])},
    )
