"""Cases of order.json: a queued request follows one that forks beside an answer (ORD-11)."""

from spec.vectors.make.build import FORK, Key
from spec.vectors.make.history import ADA, BOB, HAL, IDA, History, next_seal


def _beside(host: Key) -> History:
    """Return a turn, two requests that fork beside its answer, and a turn behind the answer.

    The second follows the first, which `host` should answer, and alone has a seal.
    """
    s = History()
    s.first_turn()
    s.ask("fork", BOB, "ask", host=host, basis="seal", conflict=FORK)
    s.ask("further", ADA, "fork", host=IDA, basis="seal", conflict=FORK)
    s.seal("seal-further", "further", ["fork", "further"], prev_seal="seal", by=IDA)
    s.answer("answer-further", "seal-further", by=IDA)
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-more", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-more", "seal-more")
    return s


def _first_that_lists() -> dict[str, object]:
    s = _beside(HAL)
    s.ask("queued", BOB, "fork", host=IDA, basis="seal")
    return s.vector(
        "queued-behind-fork-beside-answer",
        "no seal of `fork` counts, and the earliest child of its basis that lists it forks beside"
        " the answer itself: `queued` goes on there all the same",
        tips=["seal-further", "seal-more"],
        answers={"fork": None},
        sealable={
            "fork": next_seal("seal", ["fork"]),
            "queued": next_seal("seal-further", ["answer-further", "queued"]),
        },
    ) | {"requirements": ["ORD-11"]}


def _first_that_lists_same_host() -> dict[str, object]:
    s = _beside(HAL)
    s.ask("queued", BOB, "fork", basis="seal")
    return s.vector(
        "queued-behind-fork-beside-answer-same-host",
        "`queued` names the host of `fork`, and does not wait for it: another seal lists that",
        tips=["seal-further", "seal-more"],
        answers={},
        sealable={"queued": next_seal("seal-further", ["answer-further", "queued"])},
    ) | {"requirements": ["ORD-11"]}


def _listed_itself() -> dict[str, object]:
    s = History()
    s.first_turn()
    s.ask("fork", BOB, "ask", host=IDA, basis="seal", conflict=FORK)
    s.ask("queued", BOB, "fork", host=IDA, basis="seal")
    s.ask("further", ADA, "queued", basis="seal", conflict=FORK)
    s.seal("seal-further", "further", ["fork", "queued", "further"], prev_seal="seal")
    s.answer("answer-further", "seal-further")
    s.ask("more", ADA, "answer", basis="seal")
    s.seal("seal-more", "more", ["answer", "more"], prev_seal="seal")
    s.answer("answer-more", "seal-more")
    return s.vector(
        "queued-listed-behind-fork-beside-answer",
        "the seal that lists `fork` lists `queued`, too: what is queued is answered behind it, and"
        " not listed again",
        tips=["seal-further", "seal-more"],
        answers={},
        sealable={
            "fork": next_seal("seal", ["fork"]),
            "queued": next_seal("seal-further", ["answer-further"]),
        },
    ) | {"requirements": ["ORD-11"]}


CASES = (_first_that_lists, _first_that_lists_same_host, _listed_itself)
