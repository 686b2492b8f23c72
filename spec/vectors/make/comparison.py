"""comparison.json: compare(log, heads), and what is sent then (spec/05-reconcile §2)."""

from collections.abc import Iterable

from spec.vectors.make.build import (
    CONVERSATION,
    DOCUMENT,
    JOIN,
    MEMBERSHIP,
    MESSAGE,
    READER,
    WRITER,
    Built,
    NamedLog,
    one_field,
    said,
    sha256,
)
from spec.vectors.make.members import ADA, BEA, BOB, CAL, DAN

Head = dict[str, object]


def _head(entry: Built) -> Head:
    h = entry.header
    return {"author": h.author.hex(), "epoch": str(h.epoch), "track": h.track, "seq": h.seq,
            "id": entry.id.hex()}  # fmt: skip


def _unknown(entry: Built, seq: int, epoch: int | None = None) -> Head:
    """Return the head of an entry that the log does not hold, in the lane of one it holds."""
    name = f"unknown {seq} {epoch}".encode()
    changed = {"seq": seq, "id": sha256(name).hex()}
    return _head(entry) | changed | ({} if epoch is None else {"epoch": str(epoch)})


def _begin() -> NamedLog:
    log = NamedLog((ADA, BEA))
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("grant-cal", ADA, CAL, READER, parents=["grant-bob"])
    for name in ("a-0", "a-1", "a-2"):
        log.write(name, ADA, MESSAGE, said(name))
    for name in ("b-0", "b-1"):
        log.write(name, BOB, MESSAGE, said(name), parents=["a-0"])
    return log


def _vector(
    name: str,
    comment: str,
    log: NamedLog,
    peer: list[Head],
    *,
    held: Iterable[str],
    want: Iterable[Head] = (),
    diverged: Iterable[Head] = (),
    uncovered: Iterable[str] = (),
) -> dict[str, object]:
    left_out = {*held, *uncovered}
    covered = {n: e for n, e in log.entries.items() if n not in set(uncovered)}
    followed = {e.header.prev for e in covered.values()}
    heads = [_head(e) for e in covered.values() if e.id not in followed]
    heads.sort(key=lambda h: (h["author"], int(str(h["epoch"])), h["track"], h["seq"], h["id"]))
    send = [n for n in log.entries if n not in left_out]
    membership = (0, MEMBERSHIP)
    send.sort(key=lambda n: ((e := log.entries[n]).header.track not in membership,
                             e.header.lamport, e.id))  # fmt: skip
    return {
        "name": name,
        "comment": comment,
        **log.as_json(),
        "peer": peer,
        "heads": heads,
        "send": send,
        "want": [str(h["id"]) for h in want],
        "diverged": [str(h["id"]) for h in diverged],
    }


def _plain() -> list[dict[str, object]]:
    log = _begin()
    e = log.entries
    members = [_head(e["genesis"]), _head(e["grant-cal"])]
    known = ["genesis", "grant-bob", "grant-cal"]
    ahead = _unknown(e["b-1"], 4)
    other = _unknown(e["a-2"], 0, 9)
    low = _unknown(e["a-0"], 5) | {"author": DAN.public.hex()}
    return [
        _vector("nothing", "no heads: everything is sent, membership first", log, [], held=[]),
        _vector("equal", "the same heads: nothing is sent", log,
                [*members, _head(e["a-2"]), _head(e["b-1"])], held=log.entries),
        _vector("behind", "a head we hold stands for its prev-ancestors, not for what it follows"
                " in other lanes", log, [*members, _head(e["b-0"])], held=[*known, "b-0"]),
        _vector("ahead", "nothing of ours at that position: it is ahead, and holds our part", log,
                [*members, ahead], held=[*known, "b-0", "b-1"], want=[ahead]),
        _vector("other-epoch", "another epoch is another lane", log, [*members, other], held=known,
                want=[other]),
        _vector("other-author", "a lane we know nothing of", log, [*members, low], held=known,
                want=[low]),
    ]  # fmt: skip


def _forked() -> list[dict[str, object]]:
    log = _begin()
    e = log.entries
    members = [_head(e["genesis"]), _head(e["grant-cal"])]
    known = ["genesis", "grant-bob", "grant-cal"]
    twin = _unknown(e["a-1"], 1)
    first = _vector("diverged", "another id at that position: wanted, and reported; the rest of"
                    " the lane is not held by the peer", log, [*members, twin], held=known,
                    want=[twin], diverged=[twin])  # fmt: skip
    log.write("a-twin", ADA, MESSAGE, said("twin"), prev="a-0")
    log.write("a-later", ADA, MESSAGE, said("later"), prev="a-twin", parents=["a-twin"])
    log.write("a-last", ADA, MESSAGE, said("last"), prev="a-later", parents=["a-later"])
    one = [*members, _head(e["a-2"])]
    both = [*members, _head(e["a-2"]), _head(e["a-later"])]
    beyond = _unknown(e["a-0"], 9)
    at_fork = [
        _vector(f"forked-at-{n}", "a head at the forked position is one side of it", log,
                [*members, _head(e[n])], held=[*known, "a-0", n])
        for n in ("a-1", "a-twin")
    ]  # fmt: skip
    return [
        *at_fork,
        first,
        _vector("forked-one", "of a forked lane the peer holds one side, whatever the seqs", log,
                one, held=[*known, "a-0", "a-1", "a-2"]),
        _vector("forked-both", "several heads of one lane", log, both,
                held=[*known, "a-0", "a-1", "a-2", "a-twin", "a-later"]),
        _vector("forked-root", "a head before the fork", log, [*members, _head(e["a-0"])],
                held=[*known, "a-0"]),
        _vector("forked-beyond", "ahead of a forked lane: it is assumed to hold both sides", log,
                [*members, beyond], held=[*known, "a-0", "a-1", "a-2", "a-twin", "a-later",
                                          "a-last"], want=[beyond]),
    ]  # fmt: skip


def _uncovered() -> list[dict[str, object]]:
    log = _begin()
    log.write("by-cal", CAL, JOIN, b"", parents=["a-0"], track=CONVERSATION)
    log.write("stray", CAL, MESSAGE, said("x"), epoch=2)
    log.write("reply", BOB, MESSAGE, said("y"), parents=["stray"])
    e = log.entries
    peer = [_head(e["genesis"]), _head(e["grant-cal"]), _head(e["by-cal"])]
    other = _unknown(e["by-cal"], 0)
    stated = [*peer[:2], other]
    log_2 = _begin()
    log_2.write("note", BOB, DOCUMENT, one_field(1, b"\x00\x00"))
    log_2.write("note-2", BOB, DOCUMENT, one_field(1, b"\x00\x00"), parents=["note"])
    log_2.write("by-cal", CAL, JOIN, b"", track=CONVERSATION)
    log_3 = _begin()
    log_3.write("c-0", CAL, MESSAGE, said("c-0"))
    log_3.write("c-1", CAL, MESSAGE, said("c-1"), parents=["c-0"])
    log_3.write("reply", BOB, MESSAGE, said("y"), parents=["c-0"])
    return [
        _vector("uncovered-not-sent", "nothing uncovered is sent, also to a peer that lacks it;"
                " what is sent is ordered whatever its track, but for the membership", log_2, [],
                held=[], uncovered=["by-cal"]),
        _vector("uncovered-position", "an entry that is not covered is at its position all the"
                " same: another one there is reported", log, stated,
                held=["genesis", "grant-bob", "grant-cal"], want=[other], diverged=[other],
                uncovered=["by-cal"]),
        _vector("uncovered-behind", "a covered entry that only one which is not covered names as"
                " prev is a head", log_3, [], held=[], uncovered=["c-1"]),
        _vector("uncovered", "entries that are not covered are neither heads nor sent; one that a"
                " covered entry names is covered", log, peer,
                held=["genesis", "grant-bob", "grant-cal"], uncovered=["by-cal"]),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "comparison",
        "spec": "spec/05-reconcile §2",
        "comment": "A replica holds all entries; the peer states the heads `peer`. `heads` are the"
        " replica's own. It sends `send` in this order (by id lists where a lane diverged), wants"
        " the ids `want`, and reports `diverged`.",
        "vectors": [*_plain(), *_forked(), *_uncovered()],
    }
