"""Cases of order.json in which a CANCEL closes a request (spec/03-order §3, ORD-7, ORD-10)."""

from spec.vectors.make.build import FORK, WRITER
from spec.vectors.make.history import ADA, BEA, BOB, CAT, EVE, HAL, IDA, History, next_seal, tail


def closed() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.say("word", BOB, "ask")
    s.ask("behind", BOB, "word", basis="seal")
    s.cancel("cancel", ADA, "ask")
    s.say("on", BOB, "cancel", basis="seal")
    s.ask("over", BOB, "on", basis="seal", host=IDA)
    s.seal("seal-2", "over", ["on", "over"], prev_seal="seal", by=IDA)
    s.answer("answer-2", "seal-2", by=IDA)
    s.answer("late", "seal")
    return s.vector(
        "closed",
        "the requester cancels what the host does not answer, and `over` follows that: its seal"
        " extends `seal` without an answer; the late answer is a side leaf, and `behind`, which"
        " waited, goes after the answer to `over`",
        tips=["seal-2"],
        answers={"ask": "late", "over": "answer-2", "behind": None},
        sealable={"behind": next_seal("seal-2", ["answer-2", "word", "behind"])},
    )


def by() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.grant("grant-cat", ADA, CAT, WRITER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.cancel("by-writer", CAT, "ask")
    s.cancel("by-reader", EVE, "ask")
    s.cancel("of-two", BOB, "ask", "hello")
    s.cancel("by-owner", BEA, "ask")
    s.cancel("by-requester", BOB, "ask")
    skips: dict[str, object] = {"void": "ANSWER_SKIPPED"}
    for name, parent in (
        ("bare", "ask"), ("writer", "by-writer"), ("reader", "by-reader"), ("two", "of-two"),
    ):  # fmt: skip
        s.ask(name, ADA, parent, basis="seal", host=IDA)
        s.seal(f"seal-{name}", name, [name], prev_seal="seal", by=IDA, **skips)
    s.ask("owner", ADA, "by-owner", basis="seal", host=IDA)
    s.ask("requester", CAT, "by-requester", basis="seal", host=IDA)
    s.ask("fork", CAT, "by-requester", basis="seal", host=IDA, conflict=FORK)
    s.ask("fork-bare", CAT, "ask", basis="seal", host=IDA, conflict=FORK)
    return s.vector(
        "closed-by",
        "a CANCEL closes a request if its author or an owner wrote it, the request is its only"
        " parent, and whoever passes the answer over follows it",
        tips=["seal"],
        answers={"ask": None},
        sealable={
            "bare": None,
            "writer": None,
            "reader": None,
            "two": None,
            "owner": next_seal("seal", ["owner"]),
            "requester": next_seal("seal", ["requester"]),
            "fork": next_seal("seal", ["fork"]),
            "fork-bare": None,
        },
        tails=[tail("seal", ["owner"], ["owner"])],
    )


def by_former_owner() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.cancel("cancel", BEA, "ask")
    s.revoke("revoke-bea", ADA, BEA, ["cancel"], parents=s.heads)
    s.heads = ["revoke-bea"]
    s.ask("over", ADA, "cancel", basis="seal", host=IDA)
    return s.vector(
        "closed-by-former-owner",
        "a CANCEL of an owner closes a request, also where the owner was removed since and a cut"
        " keeps it",
        tips=["seal"],
        answers={"ask": None},
        sealable={"over": next_seal("seal", ["over"])},
        tails=[tail("seal", ["over"], ["over"])],
    )


def by_void_cancel() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.cancel("by-bea", BEA, "ask")
    s.say("word", BOB, "by-bea", basis="seal")
    s.cancel("by-bob", BOB, "ask")
    s.revoke("revoke-bea", ADA, BEA, [], parents=s.heads)
    s.heads = ["revoke-bea"]
    return s.vector(
        "closed-by-void-cancel",
        "a CANCEL that a cut makes void closes nothing: the next entry follows the other one",
        tips=["seal"],
        answers={"ask": None},
        tails=[tail("seal", ["word"], ["by-bob", "word"])],
    )


def answered() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.cancel("cancel", ADA, "ask")
    s.ask("more", ADA, "cancel", basis="seal")
    s.ask("skip", ADA, "cancel", basis="seal", host=IDA)
    s.answer("answer", "seal")
    s.seal("seal-skip", "skip", ["skip"], prev_seal="seal", by=IDA)
    return s.vector(
        "closed-answered",
        "a host that holds the answer of a closed request lists it; one that does not yet goes on"
        " without it, and its seal counts wherever the answer arrives first",
        tips=["seal-skip"],
        answers={"ask": "answer", "skip": None},
        tails=[tail("seal-skip", [], ["skip"])],
    )


def void_answer() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("waits", BOB, "ask", basis="seal", host=IDA)
    s.cancel("cancel", ADA, "ask")
    s.ask("over", ADA, "cancel", basis="seal", host=IDA)
    s.revoke("revoke-hal", BEA, HAL, ["seal"], parents=s.heads)
    s.heads = ["revoke-hal"]
    return s.vector(
        "closed-void-answer",
        "the host is revoked and its answer is void: a queued request waits for good, but for one"
        " that follows the CANCEL",
        tips=["seal"],
        answers={"ask": None},
        sealable={"waits": None, "over": next_seal("seal", ["over"])},
    )


def behind_listed() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.ask("ask", BOB, "hello")
    s.cancel("cancel", BOB, "ask")
    s.say("on", BOB, "cancel")
    s.ask("beside", BOB, "on", conflict=FORK)
    s.seal("seal", "beside", ["hello", "ask", "on", "beside"])
    s.answer("answer", "seal")
    s.seal("seal-ask", "ask", ["answer"], prev_seal="seal")
    s.say("word", BOB, "answer", basis="seal-ask")
    for name in ("queues", "forks"):
        fields = {"conflict": FORK} if name == "forks" else {}
        s.ask(name, BOB, "word", "beside", basis="seal-ask", host=IDA, **fields)
    s.seal("skips", "queues", ["word", "queues"], prev_seal="seal-ask", by=IDA,
           void="ANSWER_SKIPPED")  # fmt: skip
    return s.vector(
        "closed-behind-listed",
        "a CANCEL that a request reaches only through entries which the chain lists closes nothing"
        " for it: `beside` is listed, and `cancel` lies behind it",
        tips=["seal-ask"],
        answers={"ask": None, "queues": None},
        sealable={"queues": None, "forks": None},
    )


def dropped_answer() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    names = ("answer", "later", "other")
    for at, name in enumerate(names):
        # The first that is written lies at the position of the seal, so coverage drops it.
        fields = {"prev": None} if at == 0 else {"epoch": 1 + at}
        s.answer(name, "seal", **fields)
    assert s.sorted(*names)[0] == names[0], "rename one: the ids have another order"
    s.ask("next", ADA, names[0], basis="seal")
    return s.vector(
        "first-answer-dropped",
        "coverage drops the first answer, whose lane forks there: a queued request waits, also"
        " though a later answer could be listed",
        tips=["seal"],
        answers={"ask": "answer"},
        sealable={"next": None},
    )


def of_tail() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", ADA, "hello")
    s.seal("seal", "ask", ["hello", "ask"])
    s.say("mine", BOB, "ask", basis="seal")
    s.ask("ask-mine", BOB, "mine", basis="seal")
    s.say("open", ADA, "ask", basis="seal")
    s.ask("ask-open", ADA, "open", basis="seal")
    s.say("refused", ADA, "ask", basis="seal")
    s.ask("ask-refused", ADA, "refused", basis="seal")
    s.answer("refusal", "ask-refused")
    s.cancel("cancel", BEA, "ask")
    s.cancel("cancel-mine", BOB, "ask-mine")
    return s.vector(
        "closed-tail",
        "the next entry follows the CANCEL, and the words of requests that were closed or refused;"
        " the words of an open one go where its conflict says",
        tips=["seal"],
        answers={"ask": None, "ask-refused": "refusal"},
        tails=[
            tail(
                "seal",
                s.sorted("mine", "ask-mine", "refused", "ask-refused", "refusal"),
                ["cancel", "ask-mine", "refusal"],
            )
        ],
    )
