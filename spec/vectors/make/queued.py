"""Cases of order.json in which a queued request follows one that forks (ORD-11)."""

from spec.vectors.make.build import FORK
from spec.vectors.make.history import ADA, BEA, BOB, IDA, History, next_seal


def _left() -> History:
    """Return two turns, and a request that forks behind the first of them."""
    s = History()
    s.first_turn()
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.ask("fork", ADA, "answer", basis="seal", conflict=FORK)
    return s


def _waits() -> dict[str, object]:
    s = _left()
    s.say("word", BOB, "fork", basis="seal")
    s.ask("queued", ADA, "word", basis="seal")
    s.ask("beside", BOB, "answer", basis="seal")
    s.ask("past", BOB, "answer-2", "word", basis="seal-2")
    past = ["answer-2", *s.sorted("fork", "word", "past")]
    return s.vector(
        "queued-behind-fork",
        "`queued` follows a request that forks, and waits for its seal; `beside` does not, and goes"
        " on at the branch that was left; so does `past`, since no seal of `fork` would extend its"
        " basis",
        tips=["seal-2"],
        answers={"fork": None},
        sealable={
            "fork": next_seal("seal", ["answer", "fork"]),
            "queued": None,
            "beside": next_seal("seal-2", ["answer-2", "beside"]),
            "past": next_seal("seal-2", past),
        },
    )


def _follows() -> dict[str, object]:
    s = _left()
    s.ask("queued", ADA, "fork", basis="seal")
    s.ask("next", BOB, "queued", basis="seal")
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    s.answer("answer-fork", "seal-fork")
    s.seal("seal-queued", "queued", ["answer-fork", "queued"], prev_seal="seal-fork")
    s.answer("answer-queued", "seal-queued")
    return s.vector(
        "queued-follows-fork",
        "once the request that forks has its seal, those queued behind it go on there, one behind"
        " the other",
        tips=["seal-2", "seal-queued"],
        answers={"queued": "answer-queued"},
        sealable={"next": next_seal("seal-queued", ["answer-queued", "next"])},
    )


def _unanswered() -> dict[str, object]:
    s = _left()
    s.ask("queued", ADA, "fork", basis="seal")
    s.cancel("cancel", ADA, "fork")
    s.ask("over", ADA, "cancel", basis="seal", host=IDA)
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    tips = {"answer-2": "seal-2", "seal-fork": "seal-fork"}
    return s.vector(
        "queued-behind-unanswered-fork",
        "the request that forks has a seal without an answer: `queued` waits for that, and `over`"
        " goes on without it, since it follows the CANCEL",
        tips=[tips[name] for name in s.sorted(*tips)],
        answers={"fork": None},
        sealable={"queued": None, "over": next_seal("seal-fork", ["over"])},
    )


def _refused() -> dict[str, object]:
    s = _left()
    s.answer("refusal", "fork")
    s.ask("queued", ADA, "fork", basis="seal")
    s.ask("next", BOB, "queued", basis="seal")
    s.seal("seal-queued", "queued", ["answer", "fork", "queued"], prev_seal="seal")
    s.answer("answer-queued", "seal-queued")
    s.ask("other", ADA, "answer", basis="seal", conflict=FORK)
    s.answer("refusal-2", "other")
    s.ask("alone", ADA, "other", basis="seal")
    return s.vector(
        "queued-behind-refused-fork",
        "the request that forks was refused: `queued` begins its branch in its place, and `next`"
        " goes on there",
        tips=["seal-2", "seal-queued"],
        answers={"fork": "refusal", "queued": "answer-queued"},
        sealable={
            "next": next_seal("seal-queued", ["answer-queued", "next"]),
            "alone": next_seal("seal", ["answer", "other", "alone"]),
        },
    )


def _never_sealed() -> dict[str, object]:
    s = _left()
    s.ask("closed", ADA, "fork", basis="seal")
    s.cancel("cancel", BEA, "fork")
    s.ask("of-nobody", ADA, "answer", basis="seal", host=BOB, conflict=FORK)
    s.ask("no-host", ADA, "of-nobody", basis="seal")
    s.ask("of-ida", ADA, "answer", basis="seal", host=IDA, conflict=FORK)
    s.ask("other-host", ADA, "of-ida", basis="seal")
    s.ask("same-host", ADA, "of-ida", basis="seal", host=IDA)
    return s.vector(
        "queued-behind-unsealed-fork",
        "nobody waits for a request that forks and is closed, or names another host; the branch"
        " that it left is not gone on with either",
        tips=["seal-2"],
        answers={"fork": None},
        sealable={
            "closed": next_seal("seal", ["answer", "fork", "closed"]),
            "no-host": next_seal("seal", ["answer", "of-nobody", "no-host"]),
            "other-host": next_seal("seal", ["answer", "of-ida", "other-host"]),
            "same-host": None,
        },
    )


def _void() -> dict[str, object]:
    s = _left()
    s.ask("void", BOB, "answer", basis="seal", conflict=FORK)
    s.ask("first", ADA, "void", basis="seal")
    s.ask("second", ADA, "first", basis="seal")
    s.ask("third", ADA, "second", basis="seal")
    s.revoke("revoke-bob", BEA, BOB, [], parents=s.heads)
    s.heads = ["revoke-bob"]
    s.seal("seal-first", "first", ["answer", "first"], prev_seal="seal")
    s.answer("answer-first", "seal-first")
    return s.vector(
        "queued-behind-void-fork",
        "the request that forks is void, and no seal lists it: those queued behind it go on one"
        " behind the other, from the last of them that has a seal",
        tips=["seal-2", "seal-first"],
        answers={"first": "answer-first"},
        sealable={
            "second": next_seal("seal-first", ["answer-first", "second"]),
            "third": next_seal("seal-first", ["answer-first", "second", "third"]),
        },
    )


def _late() -> dict[str, object]:
    s = _left()
    s.ask("lost", ADA, "answer", basis="seal", host=IDA, conflict=FORK)
    s.cancel("cancel", ADA, "lost")
    s.ask("over", ADA, "cancel", basis="seal")
    s.ask("next", BOB, "over", basis="seal")
    s.ask("beside", BOB, "lost", basis="seal")
    s.seal("seal-over", "over", ["answer", "lost", "over"], prev_seal="seal")
    s.answer("answer-over", "seal-over")
    s.seal("seal-lost", "lost", ["answer", "lost"], prev_seal="seal", by=IDA)
    s.answer("answer-lost", "seal-lost", by=IDA)
    tips = {"answer-2": "seal-2", "answer-over": "seal-over", "answer-lost": "seal-lost"}
    return s.vector(
        "queued-behind-late-fork",
        "the request that forks gets its seal late, from another host: `next` goes on behind"
        " `over`, which it follows, and `beside` behind that seal",
        tips=[tips[name] for name in s.sorted(*tips)],
        answers={"over": "answer-over", "lost": "answer-lost"},
        sealable={
            "next": next_seal("seal-over", ["answer-over", "next"]),
            "beside": next_seal("seal-lost", ["answer-lost", "beside"]),
        },
    )


def _at_the_end() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("fork", BOB, "answer", basis="seal", host=IDA, conflict=FORK)
    s.ask("queued", ADA, "fork", basis="seal")
    s.ask("same", ADA, "answer", basis="seal", conflict=FORK)
    s.ask("behind", ADA, "same", basis="seal")
    return s.vector(
        "queued-behind-fork-at-the-end",
        "a request that forks at the end of its branch has left none: what is queued behind it"
        " does not wait for it",
        tips=["seal"],
        answers={"fork": None},
        sealable={
            "queued": next_seal("seal", ["answer", "fork", "queued"]),
            "behind": next_seal("seal", ["answer", "same", "behind"]),
        },
    )


def _at_the_root() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("fork", ADA, "hello", conflict=FORK)
    s.ask("queued", BOB, "fork")
    s.ask("next", ADA, "queued")
    s.ask("other", ADA, "hello", host=IDA, conflict=FORK)
    s.ask("alone", BOB, "other")
    return s.vector(
        "queued-behind-fork-at-the-root",
        "a request that forks without a basis leaves what was asked first; one that another host"
        " is to answer is not waited for",
        tips=["seal"],
        answers={"fork": None},
        sealable={
            "fork": next_seal(None, ["hello", "fork"]),
            "queued": None,
            "next": None,
            "alone": next_seal(None, ["hello", *s.sorted("other", "alone")]),
        },
    )


def _listed_elsewhere() -> dict[str, object]:
    s = _left()
    s.ask("past", BOB, "answer-2", "fork", basis="seal-2")
    s.ask("queued", ADA, "fork", basis="seal")
    s.ask("behind", ADA, "past", basis="seal")
    s.seal("seal-past", "past", ["answer-2", *s.sorted("fork", "past")], prev_seal="seal-2")
    s.answer("answer-past", "seal-past")
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    s.answer("answer-fork", "seal-fork")
    tips = {"answer-past": "seal-past", "answer-fork": "seal-fork"}
    return s.vector(
        "queued-behind-fork-listed-elsewhere",
        "the branch that was left lists the request that forks, too: `queued`, which follows that"
        " alone, goes behind its own seal, and `behind` goes where the request before it did",
        tips=[tips[name] for name in s.sorted(*tips)],
        answers={"fork": "answer-fork", "past": "answer-past"},
        sealable={
            "queued": next_seal("seal-fork", ["answer-fork", "queued"]),
            "behind": next_seal("seal-past", ["answer-past", "behind"]),
        },
    )


def _last() -> dict[str, object]:
    s = _left()
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal")
    s.answer("answer-fork", "seal-fork")
    s.ask("further", ADA, "answer-fork", basis="seal-fork")
    s.seal("seal-further", "further", ["answer-fork", "further"], prev_seal="seal-fork")
    s.answer("answer-further", "seal-further")
    s.ask("again", ADA, "answer-fork", basis="seal-fork", conflict=FORK)
    s.ask("queued", BOB, "again", basis="seal")
    s.ask("listed", BOB, "answer-further", "more", basis="seal-fork")
    s.ask("rootless", BOB, "answer-fork")
    return s.vector(
        "queued-behind-last-fork",
        "of several requests that fork the last one counts, also where the basis is further back;"
        " `listed` and `rootless` go on where the last one is listed",
        tips=["seal-2", "seal-further"],
        answers={"again": None},
        sealable={
            "again": next_seal("seal-fork", ["answer-fork", "again"]),
            "queued": None,
            "listed": next_seal("seal-further", ["answer-further", "more", "listed"]),
            "rootless": next_seal("seal-further", ["answer-further", "rootless"]),
        },
    )


CASES = (
    _waits, _follows, _unanswered, _refused, _never_sealed, _void, _late, _at_the_end,
    _at_the_root, _listed_elsewhere, _last,
)  # fmt: skip
