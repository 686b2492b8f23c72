"""Cases of order.json about what a chain settles, and under which membership (ORD-6, ORD-7)."""

from spec.vectors.make.build import FORK, JOIN, OWNER, TOOLS, WRITER
from spec.vectors.make.history import ADA, BEA, BOB, CAT, EVE, HAL, IDA, History, next_seal, tail


def _void_since() -> dict[str, object]:
    s = History()
    s.ask("ask", BOB, "genesis")
    s.seal("seal", "ask", ["ask"])
    s.answer("answer", "seal")
    s.ask("more", ADA, "answer", host=IDA, basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal", by=IDA)
    s.ask("fork", ADA, "answer", host=IDA, basis="seal", conflict=FORK)
    s.seal("seal-fork", "fork", ["answer", "fork"], prev_seal="seal", by=IDA)
    s.ask("again", ADA, "answer", host=IDA, basis="seal", conflict=FORK)
    s.revoke("revoke-bob", ADA, BOB, [], parents=s.heads)
    s.revoke("revoke-hal", ADA, HAL, [], parents=["revoke-bob"])
    return s.vector(
        "judged-by-named-heads",
        "a seal is judged by the membership of the heads that it names: its request, its host and"
        " the seal it extends may be void by now; `again` extends that, too, without the void"
        " answer",
        tips=["seal-2", "seal-fork"],
        answers={"ask": "answer", "more": None, "fork": None, "again": None},
        sealable={"again": next_seal("seal", ["again"])},
    ) | {"requirements": ["ORD-7"]}


def _earlier_seal() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("word", BOB, "hello")
    s.cancel("cancel", BOB, "word")
    s.ask("ask", ADA, "cancel")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-2", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-2", "seal-2")
    s.say("reply", BEA, "word")
    s.ask("next", ADA, "answer-2", "reply", basis="seal-2")
    return s.vector(
        "withdrawn-two-seals-ago",
        "a chain settles what any of its seals withdrew: `next` follows a reply to `word`, and does"
        " not list it",
        tips=["seal-2"],
        answers={},
        sealable={"next": next_seal("seal-2", ["answer-2", "reply", "next"])},
        tails=[tail("seal-2", ["reply", "next"], ["next"])],
    ) | {"requirements": ["ORD-6", "ORD-10"]}


def _other_branch() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.cancel("cancel", BOB, "word")
    s.ask("without", ADA, "cancel", host=IDA, basis="seal", conflict=FORK)
    s.seal("seal-without", "without", ["answer", "without"], prev_seal="seal", by=IDA)
    s.ask("other", ADA, "answer", basis="seal", conflict=FORK)
    s.seal("seal-other", "other", ["answer", "other"], prev_seal="seal")
    s.answer("answer-other", "seal-other")
    s.ask("next", BEA, "answer-other", "word", basis="seal-other")
    return s.vector(
        "withdrawn-on-another-branch",
        "a seal of another branch withdrew `word`: this branch does not settle it, and `next`,"
        " which does not follow the CANCEL, lists it",
        tips=["seal-without", "seal-other"],
        answers={},
        sealable={"next": next_seal("seal-other", ["answer-other", "word", "next"])},
        tails=[tail("seal-other", ["next"], ["cancel", "next"])],
    ) | {"requirements": ["ORD-6"]}


def _other_kinds() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.write("tools", BOB, TOOLS, b"", parents=["hello"])
    s.cancel("cancel-tools", BOB, "tools")
    s.ask("ask", ADA, "cancel-tools")
    s.seal("seal", "ask", ["hello", "tools", "ask"])
    s.answer("answer", "seal")
    s.cancel("cancel-answer", ADA, "answer")
    s.ask("queued", ADA, "cancel-answer", basis="seal")
    s.ask("fork", ADA, "cancel-answer", basis="seal", conflict=FORK)
    return s.vector(
        "withdrawn-messages-alone",
        "a CANCEL withdraws a MESSAGE: one of TOOLS, or of an answer by an owner, changes nothing",
        tips=["seal"],
        answers={},
        sealable={
            "queued": next_seal("seal", ["answer", "queued"]),
            "fork": next_seal("seal", ["answer", "fork"]),
        },
        tails=[tail("seal", ["queued", "fork"], ["queued", "fork"])],
    ) | {"requirements": ["ORD-6"]}


def _cancel_void_since() -> dict[str, object]:
    s = History()
    s.grant("grant-cat", ADA, CAT, OWNER, parents=s.heads)
    s.heads = ["grant-cat"]
    s.say("hello", ADA)
    s.say("word", BOB, "hello")
    s.cancel("cancel", CAT, "word")
    s.ask("ask", ADA, "cancel")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.revoke("revoke-cat", ADA, CAT, [], parents=s.heads)
    s.say("reply", BOB, "word")
    s.ask("next", BOB, "answer", "reply", basis="seal")
    return s.vector(
        "withdrawn-by-what-is-void-since",
        "the CANCEL is void by now; the seal withdrew `word` under its own membership, and that"
        " stays",
        tips=["seal"],
        answers={},
        sealable={"next": next_seal("seal", ["answer", "reply", "next"])},
        tails=[tail("seal", ["reply", "next"], ["next"])],
    ) | {"requirements": ["ORD-6", "PROM-2"]}


def _void_message() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("murmur", EVE, "hello")
    s.cancel("cancel", ADA, "murmur")
    s.ask("ask", ADA, "cancel")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.grant("grant-eve-more", ADA, EVE, WRITER, parents=s.heads)
    s.say("reply", BOB, "murmur")
    s.ask("next", BOB, "answer", "reply", basis="seal")
    return s.vector(
        "withdrawn-while-void",
        "a MESSAGE that was void when an owner cancelled it is settled all the same: it has a role"
        " now, and no later seal lists it",
        tips=["seal"],
        answers={},
        sealable={"next": next_seal("seal", ["answer", "reply", "next"])},
        tails=[tail("seal", ["reply", "next"], ["next"])],
    ) | {"requirements": ["ORD-6"]}


def _forked_lanes() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.say("word", BOB, "hello")
    s.say("twin", BOB, "hello", prev="hello")
    s.say("other", BEA, "hello")
    s.cancel("cancel-word", BOB, "word", epoch=2)
    s.cancel("cancel-other", BEA, "other")
    s.say("beside", BEA, "hello", prev="other")
    s.ask("ask", ADA, "cancel-word", "cancel-other", "twin", "beside")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.say("reply", ADA, "word", "other")
    s.ask("next", ADA, "answer", "reply", basis="seal")
    return s.vector(
        "withdrawn-in-forked-lanes",
        "a seal withdraws `word`, whose lane forks there, and `other`, whose CANCEL stands where a"
        " lane forks: what is dropped of C for a fork still decides",
        tips=["seal"],
        answers={},
        sealable={"next": next_seal("seal", ["answer", "reply", "next"])},
        tails=[tail("seal", ["reply", "next"], ["next"])],
    ) | {"requirements": ["ORD-6"]}


def _other_kinds_forked() -> dict[str, object]:
    s = History()
    s.say("hello", BOB)
    s.write("tools", BOB, TOOLS, b"", parents=["hello"])
    s.ask("first", BOB, "tools")
    s.say("twin", BOB, "hello", prev="hello")
    s.cancel("cancel-tools", BOB, "tools", epoch=2)
    s.cancel("cancel-first", BOB, "first", epoch=2)
    s.ask("ask", ADA, "cancel-tools", "cancel-first", "twin")
    s.seal("seal", "ask", ["hello", "ask"])
    s.answer("answer", "seal")
    s.ask("next", ADA, "answer", "first", basis="seal")
    return s.vector(
        "settled-messages-alone",
        "dropped for a fork and not listed, TOOLS and a REQUEST are not settled, though they were"
        " cancelled: `next` follows one side of the fork, and lists them",
        tips=["seal"],
        answers={},
        sealable={"next": next_seal("seal", ["answer", "tools", "first", "next"])},
    ) | {"requirements": ["ORD-6"]}


def _behind_listed() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("murmur", EVE, "hello")
    s.cancel("by-ada", ADA, "murmur")
    s.cancel("by-eve", EVE, "murmur")
    s.say("word", BOB, "by-eve")
    s.ask("ask", BEA, "word")
    s.seal("seal", "ask", ["hello", "word", "ask"])
    s.answer("answer", "seal")
    s.grant("grant-eve-more", ADA, EVE, WRITER, parents=s.heads)
    s.say("reply", BOB, "murmur", "answer")
    s.ask("next", BOB, "answer", "reply", basis="seal")
    return s.vector(
        "withdrawn-behind-what-is-listed",
        "`by-eve` was void, and has effect by now; it lies behind an entry that the seal lists:"
        " `next` does not reach it, so lists `murmur`, and the next entry follows `by-ada`",
        tips=["seal"],
        answers={},
        sealable={"next": next_seal("seal", ["answer", "murmur", "reply", "next"])},
        tails=[tail("seal", ["reply", "next"], ["by-ada", "next"])],
    ) | {"requirements": ["ORD-6", "ORD-10"]}


def _closed_behind_withdrawn() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.ask("first", ADA, "hello", host=IDA)
    s.cancel("cancel", ADA, "first")
    s.say("word", BOB, "cancel")
    s.cancel("cancel-word", BOB, "word")
    s.ask("ask", BEA, "first", "cancel-word")
    s.seal("seal", "ask", ["hello", "first", "ask"])
    s.answer("answer", "seal")
    s.seal("seal-first", "first", ["answer"], prev_seal="seal", by=IDA)
    s.ask("next", BEA, "answer", "word", basis="seal-first")
    return s.vector(
        "closed-behind-what-is-withdrawn",
        "the CANCEL that closes `first` lies behind a MESSAGE that the chain settles: `next` does"
        " not reach it, and waits for the answer",
        tips=["seal-first"],
        answers={},
        sealable={"next": None},
        tails=[tail("seal-first", ["word", "next"], ["next"])],
    ) | {"requirements": ["ORD-6", "ORD-11"]}


def _kept_cancel() -> dict[str, object]:
    s = History()
    s.say("hello", ADA)
    s.say("word", BOB, "hello")
    s.cancel("cancel", BOB, "word")
    s.ask("ask", ADA, "cancel")
    s.revoke("revoke-bob", ADA, BOB, ["cancel"], parents=s.heads)
    return s.vector(
        "withdrawn-by-former-member",
        "its author was removed, and a cut keeps the message and its CANCEL: it stays withdrawn",
        tips=[],
        answers={},
        sealable={"ask": next_seal(None, ["hello", "ask"])},
    ) | {"requirements": ["ORD-6"]}


def _reader() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("murmur", EVE, "answer")
    s.cancel("cancel", EVE, "murmur")
    s.say("reply", BOB, "murmur")
    s.write("join", IDA, JOIN, b"", parents=["cancel"])
    return s.vector(
        "withdrawn-by-reader",
        "a reader may not write a CANCEL, of its own message neither: the next entry does not"
        " follow it",
        tips=["seal"],
        answers={},
        tails=[tail("seal", ["reply"], ["reply"])],
    ) | {"requirements": ["ORD-10"]}


def _not_sealed() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.say("word", BOB, "answer")
    s.cancel("cancel", BOB, "word")
    s.ask("other", BEA, "cancel", host=IDA, conflict=FORK)
    s.seal("seal-other", "other", s.sorted("hello", "ask", "answer", "other"), by=IDA)
    return s.vector(
        "withdrawn-is-not-sealed",
        "a seal of another branch withdrew `word`: that lists it nowhere, and here it is in the"
        " tail, with its CANCEL behind it",
        tips=["seal", "seal-other"],
        answers={},
        tails=[tail("seal", ["word"], ["cancel"]), tail("seal-other", [], ["other"])],
    ) | {"requirements": ["ORD-10"]}


CASES = (
    _void_since, _earlier_seal, _other_branch, _other_kinds, _cancel_void_since, _void_message,
    _forked_lanes, _other_kinds_forked, _behind_listed, _closed_behind_withdrawn, _kept_cancel,
    _reader, _not_sealed,
)  # fmt: skip
