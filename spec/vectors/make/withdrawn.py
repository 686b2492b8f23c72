"""Cases of order.json in which a CANCEL withdraws a message (spec/03-order §3, ORD-6, ORD-10)."""

from spec.vectors.make.build import CANCEL, FORK, OWNER, TOOLS, WRITER
from spec.vectors.make.history import ADA, BEA, BOB, CAT, EVE, History, next_seal, tail


def _followed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("oops", BOB, "answer", basis="seal")
    s.say("what", ADA, "oops", basis="seal")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("beside", ADA, "what", basis="seal")
    s.ask("wrong", ADA, "withdrawal", "what", basis="seal")
    s.seal("seal-wrong", "wrong", ["answer", "oops", "what", "wrong"], prev_seal="seal",
           void="COVERAGE_WRONG")  # fmt: skip
    s.seal("seal-2", "wrong", ["answer", "what", "wrong"], prev_seal="seal")
    return s.vector(
        "withdrawn",
        "a request that follows the CANCEL of a message does not list that, and lists what"
        " others wrote behind it; `beside` does not follow the CANCEL, and lists all",
        tips=["seal-2"],
        answers={"wrong": None, "beside": None},
    )


def _beside() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("oops", BOB, "answer", basis="seal")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("before", ADA, "oops", basis="seal")
    s.ask("after", ADA, "withdrawal", basis="seal")
    return s.vector(
        "withdrawn-beside",
        "a message is left out for the requests that follow its CANCEL, and for no others; the"
        " next entry follows the CANCEL",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={
            "before": next_seal("seal", ["answer", "oops", "before"]),
            "after": next_seal("seal", ["answer", "after"]),
        },
        tails=[tail("seal", s.sorted("oops", "before", "after"), ["before", "after"])],
    )


def _by() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.say("oops", BOB, "answer", basis="seal")
    s.say("other", BOB, "answer", basis="seal")
    s.cancel("by-author", BOB, "oops")
    s.cancel("by-owner", BEA, "oops")
    s.cancel("by-writer", CAT, "oops")
    s.cancel("by-reader", EVE, "oops")
    s.cancel("of-two", BOB, "oops", "other")
    found: dict[str, object] = {}
    for name in ("author", "owner", "writer", "reader"):
        s.ask(name, ADA, f"by-{name}", basis="seal")
        kept = [] if name in ("author", "owner") else ["oops"]
        found[name] = next_seal("seal", ["answer", *kept, name])
    s.ask("two", ADA, "of-two", basis="seal")
    found["two"] = next_seal("seal", ["answer", *s.sorted("oops", "other"), "two"])
    return s.vector(
        "withdrawn-by",
        "a CANCEL withdraws a message if its author or an owner wrote it, and the message is its"
        " only parent",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable=found,
    )


def _by_named_heads() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.grant("grant-cat", ADA, CAT, OWNER, parents=s.heads)
    s.say("oops", BOB, "answer", basis="seal")
    s.cancel("withdrawal", CAT, "oops")
    s.ask("by-none", ADA, "withdrawal", basis="seal")
    s.seal("seal-none", "by-none", ["answer", "oops", "by-none"], prev_seal="seal")
    s.heads = ["grant-cat"]
    s.ask("by-owner", ADA, "withdrawal", basis="seal")
    s.seal("seal-owner", "by-owner", ["answer", "by-owner"], prev_seal="seal")
    return s.vector(
        "withdrawn-by-named-heads",
        "who may withdraw is judged by the membership that the seal names",
        tips=s.sorted("seal-none", "seal-owner"),
        answers={"by-none": None, "by-owner": None},
    )


def _forked_lane() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("oops", BOB, "answer", basis="seal")
    s.write("withdrawal", BOB, CANCEL, b"", parents=["oops"])
    s.say("twin", BOB, "answer", prev="oops")
    s.ask("over", ADA, "withdrawal", "twin", basis="seal")
    s.seal("seal-2", "over", ["answer", "over"], prev_seal="seal")
    return s.vector(
        "withdrawn-forked-lane",
        "a CANCEL withdraws for a request that reaches it, though its lane is forked there",
        tips=["seal-2"],
        answers={"over": None},
    )


def _for_good() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("oops", BOB, "answer", basis="seal")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("more", ADA, "withdrawal", basis="seal")
    s.say("reply", BEA, "oops", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.ask("next", ADA, "answer-2", "reply", basis="seal-2")
    s.ask("fork", ADA, "reply", basis="seal", conflict=FORK)
    return s.vector(
        "withdrawn-for-good",
        "behind a seal that left a message out, a late reply to it brings it back no more; on a"
        " branch beside that seal it does",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        sealable={
            "next": next_seal("seal-2", ["answer-2", "reply", "next"]),
            "fork": next_seal("seal", ["answer", "oops", "reply", "fork"]),
        },
    )


def _late() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.say("oops", BOB, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.cancel("withdrawal", BOB, "oops")
    return s.vector(
        "withdrawn-late",
        "a late message that was withdrawn is in the tail, and the next entry follows its CANCEL",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        tails=[tail("seal-2", ["oops"], ["answer-2", "withdrawal"])],
    )


def _unanswered() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.say("oops", BOB, "ask", basis="seal")
    s.ask("ask-oops", BOB, "oops", basis="seal")
    s.cancel("closing", BOB, "ask-oops")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("instead", BOB, "ask-oops", "withdrawal", basis="seal")
    s.answer("answer", "seal")
    return s.vector(
        "withdrawn-while-waiting",
        "a question is taken back while another one is answered: its request is closed, its"
        " message withdrawn, and what is asked instead waits like any other",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={
            "ask-oops": next_seal("seal", ["answer", "oops", "ask-oops"]),
            "instead": next_seal("seal", ["answer", "ask-oops", "instead"]),
        },
    )


def _listed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.cancel("withdrawal", ADA, "hello")
    s.ask("more", ADA, "answer", "withdrawal", basis="seal")
    s.ask("again", ADA, "withdrawal", conflict=FORK)
    return s.vector(
        "withdrawn-listed",
        "a message that the chain lists stays in the context; a branch that does not have it"
        " leaves it out",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={
            "more": next_seal("seal", ["answer", "more"]),
            "again": next_seal(None, ["again"]),
        },
    )


def _again() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.cancel("withdrawal", ADA, "hello")
    s.say("oops", BOB, "answer", basis="seal")
    s.cancel("first", BOB, "oops")
    s.ask("more", ADA, "withdrawal", "first", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.cancel("second", BEA, "oops")
    s.ask("third", ADA, "answer-2", "second", basis="seal-2")
    s.seal("seal-3", "third", ["answer-2", "third"], prev_seal="seal-2")
    s.ask("left", ADA, "answer", "hello", basis="seal", conflict=FORK)
    s.ask("right", ADA, "answer-2", "oops", basis="seal-2", conflict=FORK)
    return s.vector(
        "withdrawn-again",
        "a CANCEL of a message that the chain lists or left out already changes nothing for the"
        " branches behind it",
        tips=["seal-3"],
        answers={"more": "answer-2", "third": None},
        sealable={
            "left": next_seal("seal", ["answer", "left"]),
            "right": next_seal("seal-2", ["answer-2", "right"]),
        },
    )


def _late_reply() -> dict[str, object]:
    s = History()
    s.two_branches()
    s.say("oops", BOB, "answer", basis="seal")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("more", ADA, "answer-left", "withdrawal", basis="seal-left")
    s.say("reply", BEA, "oops", basis="seal")
    return s.vector(
        "withdrawn-late-reply",
        "whoever follows a reply to a withdrawn message follows its CANCEL too, also where a"
        " request of another branch follows that",
        tips=["seal-left", "seal-right"],
        answers={"left": "answer-left", "right": "answer-right"},
        tails=[
            tail("seal-left", s.sorted("oops", "reply", "more"), ["more", "reply"]),
            tail("seal-right", ["reply"], ["answer-right", "reply", "withdrawal"]),
        ],
    )


def _void_cancel() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("oops", BOB, "answer", basis="seal")
    s.say("reply", ADA, "oops", basis="seal")
    s.cancel("by-bea", BEA, "oops")
    s.cancel("by-bob", BOB, "oops")
    s.cancel("by-bob-too", BOB, "oops")
    s.say("other", BOB, "answer", basis="seal")
    s.cancel("by-bea-alone", BEA, "other")
    s.revoke("revoke-bea", ADA, BEA, [], parents=s.heads)
    s.heads = ["revoke-bea"]
    return s.vector(
        "withdrawn-by-void-cancel",
        "a void CANCEL withdraws nothing, and is followed by nobody",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[
            tail("seal", s.sorted("oops", "reply", "other"), ["reply", "other", "by-bob"]),
        ],
    )


def _of_fork() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("tools", BOB, TOOLS, b"", parents=["answer"])
    s.say("oops", BOB, "tools", basis="seal")
    s.ask("fork", BOB, "oops", basis="seal", conflict=FORK)
    s.cancel("closing", BOB, "fork")
    s.cancel("withdrawal", BOB, "oops")
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    return s.vector(
        "withdrawn-of-fork",
        "the CANCEL of a message that a branch does not reach is not followed there",
        tips=["seal-2"],
        answers={"more": "answer-2"},
        tails=[tail("seal-2", [], ["answer-2"])],
    )


CASES = (
    _followed, _beside, _by, _by_named_heads, _forked_lane, _for_good, _late, _unanswered, _listed,
    _again, _late_reply, _void_cancel, _of_fork,
)  # fmt: skip
