"""Cases of order.json about where a queued request goes on, and for whom it waits (ORD-11)."""

from spec.vectors.make.build import FORK, JOIN
from spec.vectors.make.history import ADA, BEA, BOB, HAL, IDA, History, next_seal, tail


def _left() -> History:
    """Return two turns, the second of them behind the first."""
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    return s


def _cut_request() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("ask", BOB, "hello")
    s.say("reply", BEA, "ask")
    s.revoke("revoke-bob", ADA, BOB, [], parents=s.heads)
    return s.vector(
        "request-behind-a-cut",
        "a request that a cut leaves out is void, though its author has the role, and gets no seal",
        tips=[],
        answers={},
        sealable={"ask": None},
        tails=[tail(None, ["hello", "reply"], ["reply"])],
    ) | {"requirements": ["ORD-11"]}


def _void_fork() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", basis="seal", conflict=FORK)
    s.ask("queued", BEA, "fork", basis="seal")
    s.revoke("revoke-bob", ADA, BOB, [], parents=s.heads)
    return s.vector(
        "queued-behind-unsealed-void-fork",
        "the request that forks is void: nobody waits for its seal, though it names the same host",
        tips=["seal-2"],
        answers={},
        sealable={"queued": next_seal("seal", ["answer", "queued"])},
        tails=[tail("seal-2", [], ["answer-2"])],
    ) | {"requirements": ["ORD-11"]}


def _sealed_at_the_root() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", host=IDA, basis="seal", conflict=FORK)
    s.ask("rootless", BEA, "fork")
    s.seal("seal-rootless", "rootless", ["hello", "ask", "answer", "fork", "rootless"])
    s.answer("answer-rootless", "seal-rootless")
    s.ask("queued", BEA, "rootless", basis="seal")
    return s.vector(
        "queued-behind-request-sealed-elsewhere",
        "`rootless`, which follows the fork, has a seal at the root: that does not extend the basis"
        " of the fork, and `queued` goes on at that basis",
        tips=["seal-2", "seal-rootless"],
        answers={},
        sealable={"queued": next_seal("seal", ["answer", "fork", "rootless", "queued"])},
        tails=[tail("seal-2", [], ["answer-2"])],
    ) | {"requirements": ["ORD-11"]}


def _listing_child() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", host=IDA, basis="seal", conflict=FORK)
    s.ask("further", BEA, "fork", basis="seal", conflict=FORK)
    s.seal("seal-further", "further", ["answer", "fork", "further"], prev_seal="seal")
    s.answer("answer-further", "seal-further")
    s.ask("beside", BEA, "fork", basis="seal", conflict=FORK)
    s.seal("seal-beside", "beside", ["answer", "fork", "beside"], prev_seal="seal")
    s.answer("answer-beside", "seal-beside")
    s.ask("on", BEA, "answer-further", basis="seal-further")
    s.seal("seal-on", "on", ["answer-further", "on"], prev_seal="seal-further")
    s.answer("answer-on", "seal-on")
    s.ask("queued", BOB, "fork", basis="seal")
    return s.vector(
        "queued-behind-the-earliest-listing-seal",
        "no seal of `fork` counts, and two children of its basis list it: `queued` goes on at the"
        " end behind the earlier one",
        tips=["seal-2", "seal-beside", "seal-on"],
        answers={},
        sealable={
            "queued": next_seal("seal-on", ["answer-on", "queued"]),
            "fork": next_seal("seal", ["answer", "fork"]),
        },
    ) | {"requirements": ["ORD-11"]}


def _void_answer() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BEA, "answer")
    s.ask("fork", BEA, "ask", host=IDA, basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["fork"], prev_seal="seal", by=IDA)
    s.answer("answer-fork", "seal-fork", by=IDA)
    s.revoke("revoke-hal", ADA, HAL, ["seal"], parents=s.heads)
    s.ask("queued", BOB, "ask", host=IDA, basis="seal")
    return s.vector(
        "end-beside-void-answer",
        "the answer of `seal` is void by now: a fork beside it goes on with the branch",
        tips=["seal-fork"],
        answers={},
        sealable={"queued": next_seal("seal-fork", ["answer-fork", "queued"])},
        tails=[tail("seal-fork", ["word"], ["word", "answer-fork"])],
    ) | {"requirements": ["ORD-11"]}


def _no_answer() -> dict[str, object]:
    s = History()
    s.ask("ask", ADA, "genesis")
    s.seal("seal", "ask", ["ask"])
    s.cancel("cancel", ADA, "ask")
    s.ask("fork", BEA, "cancel", host=IDA, basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["fork"], prev_seal="seal", by=IDA)
    s.answer("answer-fork", "seal-fork", by=IDA)
    s.ask("queued", BOB, "ask", host=IDA, basis="seal")
    return s.vector(
        "end-behind-no-answer",
        "`seal` has no answer that a fork could leave out: the fork goes on with the branch",
        tips=["seal-fork"],
        answers={},
        sealable={"queued": next_seal("seal-fork", ["answer-fork", "queued"])},
        tails=[tail("seal-fork", [], ["answer-fork"])],
    ) | {"requirements": ["ORD-11"]}


def _late_answer() -> dict[str, object]:
    s = History()
    s.ask("ask", ADA, "genesis")
    s.seal("seal", "ask", ["ask"])
    s.cancel("cancel", ADA, "ask")
    s.ask("fork", BEA, "cancel", basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["fork"], prev_seal="seal")
    s.answer("answer", "seal")
    s.answer("answer-fork", "seal-fork")
    s.ask("queued", BOB, "ask", host=IDA, basis="seal")
    assert s.sorted("answer", "seal-fork") == ["seal-fork", "answer"]
    return s.vector(
        "end-beside-late-answer",
        "the answer of `seal` came after the seal of the fork: that leaves it out all the same, and"
        " `queued` goes on behind the answer",
        tips=["seal-fork"],
        answers={},
        sealable={"queued": next_seal("seal", ["answer", "queued"])},
        tails=[tail("seal-fork", [], ["answer-fork"])],
    ) | {"requirements": ["ORD-11"]}


def _other_request() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    s.answer("answer-fork", "seal-fork")
    s.ask("other", BEA, "answer", basis="seal")
    s.say("word", BEA, "other")
    s.ask("last", BEA, "word", basis="seal")
    s.ask("queued", BOB, "fork", "last", basis="seal")
    assert s.sorted("last", "fork") == ["fork", "last"]
    return s.vector(
        "queued-behind-fork-and-other-request",
        "`last` is the last request that `queued` reaches, and does not reach the fork: it decides"
        " nothing",
        tips=["seal-2", "seal-fork"],
        answers={},
        sealable={
            "queued": next_seal("seal-fork", ["answer-fork", "other", "word", "last", "queued"]),
            "last": next_seal("seal-2", ["answer-2", "other", "word", "last"]),
        },
    ) | {"requirements": ["ORD-11"]}


def _foreign_fork() -> dict[str, object]:
    s = _left()
    s.ask("own", ADA, "answer", basis="seal", conflict=FORK)
    s.seal("seal-own", "own", ["answer", "own"], prev_seal="seal")
    s.answer("answer-own", "seal-own")
    s.ask("foreign", BOB, "answer-own", host=IDA, basis="seal-own", conflict=FORK)
    s.ask("on", BEA, "answer-own", basis="seal-own")
    s.seal("seal-on", "on", ["answer-own", "on"], prev_seal="seal-own")
    s.answer("answer-on", "seal-on")
    s.ask("queued", ADA, "foreign", basis="seal")
    return s.vector(
        "queued-behind-foreign-fork",
        "of the requests that fork the last one counts, whoever wrote it",
        tips=["seal-2", "seal-on"],
        answers={},
        sealable={"queued": next_seal("seal-own", ["answer-own", "foreign", "queued"])},
    ) | {"requirements": ["ORD-11"]}


def _listed_fork() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    s.answer("answer-fork", "seal-fork")
    s.ask("on", BOB, "answer-fork", basis="seal-fork")
    s.seal("seal-on", "on", ["answer-fork", "on"], prev_seal="seal-fork")
    s.answer("answer-on", "seal-on")
    s.ask("aside", BEA, "answer-fork", basis="seal-fork", conflict=FORK)
    s.seal("seal-aside", "aside", ["answer-fork", "aside"], prev_seal="seal-fork")
    s.answer("answer-aside", "seal-aside")
    s.ask("queued", BEA, "answer-aside", basis="seal-fork")
    return s.vector(
        "queued-behind-listed-fork",
        "`queued` follows the answer of a fork that lists it with that seal: it goes on there, and"
        " not at the end that its basis leads to",
        tips=["seal-2", "seal-on", "seal-aside"],
        answers={},
        sealable={"queued": next_seal("seal-aside", ["answer-aside", "queued"])},
    ) | {"requirements": ["ORD-11"]}


def _deeper() -> dict[str, object]:
    s = _left()
    s.ask("fork", BOB, "answer", host=IDA, basis="seal", conflict=FORK)
    s.ask("past", BEA, "answer-2", "fork", basis="seal-2")
    s.seal("seal-past", "past", ["answer-2", *s.sorted("fork", "past")], prev_seal="seal-2")
    s.answer("answer-past", "seal-past")
    s.ask("queued", BOB, "fork", basis="seal")
    return s.vector(
        "queued-behind-fork-listed-deeper",
        "a seal further down the branch that was left lists the fork: `queued` goes on at the basis"
        " of the fork, whose own children do not list it",
        tips=["seal-past"],
        answers={},
        sealable={"queued": next_seal("seal", ["answer", "fork", "queued"])},
    ) | {"requirements": ["ORD-11"]}


def _late_at_the_root() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("fork", ADA, "hello", host=IDA, conflict=FORK)
    s.ask("over", BEA, "fork", conflict=FORK)
    s.seal("seal-over", "over", ["hello", "fork", "over"])
    s.answer("answer-over", "seal-over")
    s.ask("open", BEA, "fork", host=IDA)
    s.ask("queued", BOB, "open")
    s.write("join", IDA, JOIN, b"", parents=["answer-over"])
    s.seal("seal-fork", "fork", ["hello", "fork"], by=IDA)
    s.answer("answer-fork", "seal-fork", by=IDA)
    assert s.sorted("seal-fork", "seal-over") == ["seal-over", "seal-fork"]
    return s.vector(
        "queued-behind-late-fork-at-the-root",
        "another seal at the root lists `fork` before its own does: `queued`, which follows it"
        " behind a request without a seal, goes on behind its own",
        tips=["seal", "seal-over", "seal-fork"],
        answers={},
        sealable={
            "queued": next_seal("seal-fork", ["answer-fork", "open", "queued"]),
            "open": next_seal("seal-fork", ["answer-fork", "open"]),
        },
    ) | {"requirements": ["ORD-11"]}


CASES = (
    _cut_request, _void_fork, _sealed_at_the_root, _listing_child, _void_answer, _no_answer,
    _late_answer, _other_request, _foreign_fork, _listed_fork, _deeper, _late_at_the_root,
)  # fmt: skip
