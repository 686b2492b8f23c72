"""Cases of order.json, one for each core that looks at less than ORD-6 to ORD-11 say."""

from spec.vectors.make.build import (
    FORK,
    GENERATION,
    HOST,
    JOIN,
    MESSAGE,
    REQUEST,
    TOOLS,
    WRITER,
    message,
    one_field,
    request,
)
from spec.vectors.make.history import ADA, BEA, BOB, CAT, EVE, HAL, IDA, History, next_seal, tail


def _sealed_after() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.say("deep", ADA, "ask")
    s.say("deeper", ADA, "deep")
    for epoch in (2, 3, 4):  # so that the lamports of these lanes are greater
        s.write(f"pad-{epoch}", HAL, JOIN, b"", parents=["deeper"], epoch=epoch)
    after: dict[str, object] = {"void": "SEALED_BEFORE"}
    s.seal("short", "ask", ["ask"], epoch=2, **after)  # type: ignore[arg-type]
    s.seal("wrong", "ask", ["hello", "ask"], digest=bytes(32), epoch=3, **after)  # type: ignore[arg-type]
    s.seal("twin", "ask", ["hello", "ask"], epoch=4, **after)  # type: ignore[arg-type]
    s.seal("good", "ask", ["hello", "ask"])
    return s.vector(
        "sealed-after",
        "void seals behind a good one of the same request are void for that, whichever comes first",
        tips=["good"],
        answers={"ask": None},
    )


def _two_parents() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    words = [f"word-{i}" for i in range(24)]
    for word in words:
        s.say(word, BOB, "ask")
    above = next(w for w in words if s.entries[w].id > s.entries["seal"].id)
    s.write("both", HAL, GENERATION, b"", parents=["seal", above])
    s.ask("open", ADA, "hello")
    later = next(w for w in words if s.entries[w].id > s.entries["open"].id)
    s.write("refuses-both", HAL, GENERATION, b"", parents=["open", later])
    return s.vector(
        "two-parents",
        "a generation with two parents answers nothing and refuses nothing, though the seal or the"
        " request is the first of them",
        tips=["seal"],
        answers={"ask": None, "open": None},
    )


def _refusals() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.answer("foreign", "ask", by=IDA)
    for number in range(4):
        s.answer(f"refusal-{number}", "ask", epoch=5 + number)
    first = s.sorted(*(f"refusal-{n}" for n in range(4)))[0]
    return s.vector(
        "refusals",
        "the first refusal by the named host is the answer; another host's is none",
        tips=[],
        answers={"ask": first},
    )


def _answers() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    for number in range(4):
        s.answer(f"answer-{number}", "seal", epoch=5 + number)
    first = s.sorted(*(f"answer-{n}" for n in range(4)))[0]
    return s.vector(
        "answers",
        "of several answers the first in (lamport, id) counts",
        tips=["seal"],
        answers={"ask": first},
        tails=[tail("seal", [], [first])],
    )


def _queue_on_branch() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("left", ADA, "answer", basis="seal", conflict=FORK)
    s.seal("seal-left", "left", ["answer", "left"], prev_seal="seal")
    s.answer("answer-left", "seal-left")
    s.ask("right", BOB, "answer", basis="seal", conflict=FORK)
    s.seal("seal-right", "right", ["answer", "right"], prev_seal="seal")
    s.answer("answer-right", "seal-right")
    s.ask("queued", ADA, "answer-right", basis="seal-right")
    s.ask("first-child", BOB, "answer", basis="seal")
    s.ask("rootless", BOB, "hello")
    early = s.sorted("seal-left", "seal-right")[0]
    end = {"seal-left": "answer-left", "seal-right": "answer-right"}[early]
    return s.vector(
        "queue-on-branch",
        "a queued request goes to the end of the branch of its basis; from where that forks, and"
        " from the root, the earliest child leads on",
        tips=[n.replace("answer", "seal") for n in s.sorted("answer-left", "answer-right")],
        answers={"queued": None},
        sealable={
            "queued": next_seal("seal-right", ["answer-right", "queued"]),
            "first-child": next_seal(early, [end, "first-child"]),
            "rootless": next_seal(early, [end, "rootless"]),
        },
    )


def _void_basis_fork() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    wrong: dict[str, object] = {"prev_seal": "seal", "void": "CONTEXT_DIGEST_WRONG"}
    s.seal("bad", "more", ["answer", "more"], digest=bytes(32), **wrong)  # type: ignore[arg-type]
    s.ask("after", ADA, "answer", basis="bad", conflict=FORK)
    s.ask("waits", BOB, "answer", basis="bad")
    s.seal("seal-2", "after", ["answer", "after"], prev_seal="seal")
    return s.vector(
        "void-basis-fork",
        "a request that forks on a void seal extends the nearest valid one below it",
        tips=["seal-2"],
        answers={"after": None},
        sealable={"waits": None},
    )


def _void_answer_covered() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("on", ADA, "answer", basis="seal")
    s.ask("queued", BOB, "hello", basis="seal", host=IDA)
    s.ask("fork", BOB, "on", basis="seal", host=IDA, conflict=FORK)
    s.cancel("cancel", ADA, "ask")
    s.ask("over", BOB, "cancel", basis="seal", host=IDA)
    s.revoke("revoke-hal", BEA, HAL, ["seal"], parents=s.heads)
    s.heads = ["revoke-hal"]
    return s.vector(
        "void-answer-covered",
        "the answer is void and covered, since a message follows it: coverage does not list it; a"
        " queued request waits, one that forks does not, one behind the CANCEL goes on without it",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={
            "queued": None,
            "fork": next_seal("seal", ["on", "fork"]),
            "over": next_seal("seal", ["over"]),
        },
    )


def _unreadable() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("odd", ADA, MESSAGE, b"\xff", parents=["answer"], basis="seal")
    unknown_part = message({1: 2, 2: [one_field(9, b"new")]})
    s.write("newer", ADA, MESSAGE, unknown_part, parents=["answer"], basis="seal")
    s.write("group", ADA, MESSAGE, b"\x08\x02\xa3\x06\xa4\x06", parents=["newer"], basis="seal")
    s.write("tools", ADA, TOOLS, b"", parents=["odd"], basis="seal")
    s.ask("more", BOB, "tools", "group", basis="seal")
    return s.vector(
        "unreadable",
        "a message that does not parse, one with an unknown part, and one that holds a group, are"
        " in no tail, and in a context all the same; tools are in both",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={
            "more": next_seal("seal", s.sorted("answer", "odd", "newer", "group", "tools", "more"))
        },
        tails=[tail("seal", s.sorted("tools", "more"), ["more"])],
    )


def _through_void_seal() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "ask")
    s.ask("side", BOB, "word", host=IDA)
    s.cancel("close", BOB, "side")
    wrong: dict[str, object] = {"by": IDA, "void": "ANSWER_SKIPPED"}
    s.seal("bad", "side", ["side"], prev_seal="seal", **wrong)  # type: ignore[arg-type]
    s.answer("lost", "bad", by=IDA)
    s.ask("waits", ADA, "ask", "lost", basis="seal")
    s.say("child", BOB, "waits")
    s.seal("bad-2", "waits", ["waits"], prev_seal="seal", void="ANSWER_SKIPPED")
    s.answer("lost-2", "bad-2")
    s.say("beside", BOB, "ask", "lost-2")
    return s.vector(
        "through-void-seal",
        "`waits` follows `word` only by way of a seal, and `beside` follows `waits` so: no way"
        " leads there through entries of the tail, so all three stay in it",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted("word", "side", "beside"), ["answer", "beside"])],
    )


def _deep_vouched() -> dict[str, object]:
    s = History()
    s.say("stranger", CAT)
    s.say("second", CAT, "stranger")
    s.say("third", CAT, "second", epoch=2)
    s.ask("ask", ADA, "third")
    s.seal("seal", "ask", ["ask"])
    return s.vector(
        "strangers-behind",
        "what strangers wrote is admitted as deep as an honest entry follows it, and is no context",
        tips=["seal"],
        answers={"ask": None},
    )


def _forked_twice() -> dict[str, object]:
    s = History()
    s.say("one", BOB)
    s.say("two", BOB, "one")
    s.say("three", BOB, "two")
    s.say("twin", BOB, "one", prev="one")
    s.say("twin-late", BOB, "three", prev="two")
    s.ask("ask", ADA, "three", "twin", "twin-late")
    s.seal("late", "ask", ["one", "two", "ask"], void="COVERAGE_WRONG")
    s.seal("all", "ask", s.sorted("one", "two", "three", "twin", "twin-late", "ask"),
           void="COVERAGE_WRONG")  # fmt: skip
    s.seal("seal", "ask", ["one", "ask"])
    return s.vector(
        "forked-twice",
        "a lane forked at two positions is dropped from the first of them on",
        tips=["seal"],
        answers={"ask": None},
    )


def _many_ends() -> dict[str, object]:
    s = History()
    s.first_turn()
    before, names = [f"d-{i}" for i in range(3)], [f"w-{i}" for i in range(66)]
    for name, parent in zip(before, ["ask", *before], strict=False):
        s.say(name, BOB, parent, basis="seal")
    for number, name in enumerate(names):
        s.say(name, BOB, before[-1 - number % 2], basis="seal", epoch=10 + number)
    ordered = s.sorted(*names)
    return s.vector(
        "many-ends",
        "of 67 ends the answer and the last 63 in (lamport, id) are the parents of the next entry",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[tail("seal", s.sorted(*before, *names), ["answer", *ordered[-63:]])],
    )


def _many_ends_late() -> dict[str, object]:
    s = History()
    s.say("before", BOB)
    names = [f"w-{i}" for i in range(66)]
    for number, name in enumerate(names):
        s.say(name, BOB, ("before", "genesis")[number % 2], epoch=10 + number)
    s.first_turn()
    found = s.sorted("before", *names)
    ordered = s.sorted(*names)
    return s.vector(
        "many-ends-late",
        "of 66 ends behind a start the last 64 in (lamport, id) are the parents of the next entry;"
        " a tip that none of them follows stays beside the last 63",
        tips=["seal"],
        answers={"ask": "answer"},
        tails=[
            tail(None, found, ordered[-64:]),
            tail("seal", found, ["answer", *ordered[-63:]]),
        ],
    )


def _through_reached() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.write("new-kind", BOB, 99, b"", parents=["more"])
    s.ask("fork", BOB, "new-kind", basis="seal", conflict=FORK)
    listed = ["answer", *s.sorted("more", "fork")]
    s.seal("seal-fork", "fork", listed, prev_seal="seal")
    s.say("over", ADA, "new-kind", basis="seal-2")
    return s.vector(
        "ends-through-passed-over",
        "`over` follows `more` through an entry that another branch passed over",
        tips=["seal-2", "seal-fork"],
        answers={"more": None, "fork": None},
        tails=[tail("seal-2", ["over"], ["over"])],
    )


def _cancel_kinds() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.write("join-eve", EVE, JOIN, b"", parents=["answer"])
    s.cancel("late", ADA, "ask")
    s.say("on", BOB, "late", basis="seal")
    s.ask("own", BOB, "on", basis="seal")
    s.grant("host-ada", BEA, ADA, HOST, parents=s.heads)
    s.heads = ["host-ada"]
    s.ask("by-ada", BOB, "on", basis="seal", host=ADA)
    s.seal("of-ada", "by-ada", ["answer", "on", "by-ada"], prev_seal="seal", by=ADA)
    return s.vector(
        "owner-hosts",
        "an owner that is a host as well seals; a CANCEL behind the answer changes nothing",
        tips=["of-ada"],
        answers={"ask": "answer", "own": None},
        sealable={"own": None},
    )


def _heads_join() -> dict[str, object]:
    s = History()
    s.say("hello", CAT)
    s.write("join", EVE, JOIN, b"", parents=s.heads, track=3)
    s.grant("grant-cat", ADA, CAT, WRITER, parents=["join"], epoch=2)
    s.heads = ["grant-cat"]
    s.write("ask", ADA, REQUEST, request(HAL), parents=["hello"])
    s.seal("seal", "ask", ["hello", "ask"])
    return s.vector(
        "heads-through-join",
        "membership heads reach through JOINs, even a reader's: the grant to the host stands"
        " behind one",
        tips=["seal"],
        answers={"ask": None},
    )


def _first_queue() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.ask("fork", ADA, "hello", conflict=FORK)
    s.ask("of-bea", ADA, "hello", host=BEA)
    s.seal("by-owner", "of-bea", ["hello", "of-bea"], by=BEA, void="HOST_NOT_MEMBER")
    return s.vector(
        "first-request",
        "before any seal, a request is sealed without one, whether it queues or forks; an owner"
        " that is no host seals none",
        tips=[],
        answers={"ask": None, "fork": None},
        sealable={
            "ask": next_seal(None, ["hello", "ask"]),
            "fork": next_seal(None, ["hello", "fork"]),
        },
    )


CASES = (
    _first_queue,
    _sealed_after, _two_parents, _refusals, _answers, _queue_on_branch, _void_basis_fork,
    _void_answer_covered, _unreadable, _through_void_seal, _deep_vouched, _forked_twice,
    _many_ends, _many_ends_late, _through_reached, _cancel_kinds, _heads_join,
)  # fmt: skip
