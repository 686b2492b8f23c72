"""Cases of admission.json about entries that wait, and those that let them in."""

from dataclasses import replace

from spec.vectors.make.admission_log import (
    ADA,
    BASE,
    BOB,
    DAN,
    EVE,
    HAL,
    SEALED,
    Cases,
    seal_body,
)
from spec.vectors.make.build import (
    MEMBER,
    MESSAGE,
    SEAL,
    WRITER,
    grant,
    said,
    sha256,
    signed,
)

FAR = sha256(b"an entry that is nowhere")


def pending(cases: Cases) -> None:
    """Add entries that follow what is not here."""
    log = cases.log
    ids = {name: e.id for name, e in log.entries.items()}
    late = log.entries
    cases.add(
        "pending-genesis",
        "nothing is here yet",
        [],
        late["hello"],
        "pending",
        missing=[ids["genesis"]],
    )
    cases.add(
        "pending-parent",
        "its parent is missing",
        ["genesis", "grant-bob"],
        late["reply"],
        "pending",
        missing=[ids["hello"]],
    )
    cases.add(
        "pending-prev",
        "prev and parent are missing",
        ["genesis", "grant-bob", "grant-hal"],
        late["ask"],
        "pending",
        missing=[ids["hello"], ids["reply"]],
    )
    cases.add(
        "pending-grant",
        "all ancestors are here, its author has no grant",
        ["genesis", "hello"],
        late["reply"],
        "pending",
    )
    _listed(cases)
    _complete(cases)
    cases.add(
        "pending-basis",
        "its basis is missing",
        BASE,
        signed(log.header("b", ADA, MESSAGE, said("x"), parents=["ask"], basis="seal"), ADA),
        "pending",
        missing=[ids["seal"]],
    )


def _complete(cases: Cases) -> None:
    """Add entries behind a pending one that lacks a grant alone."""
    log = cases.log
    behind = log.header("behind", BOB, MESSAGE, said("x"), parents=["reply"])
    cases.add(
        "pending-complete",
        "it follows a pending entry that lacks a grant alone, and lacks the same",
        ["genesis", "hello", "reply"],
        signed(behind, BOB),
        "pending",
        missing=[log.entries["reply"].id],
    )
    cases.add(
        "pending-lamport",
        "it is checked against that entry at once",
        ["genesis", "hello", "reply"],
        signed(replace(behind, lamport=behind.lamport + 1), BOB),
        "refused",
        "LAMPORT_INVALID",
    )


def _listed(cases: Cases) -> None:
    """Add seals that list what is not here."""
    log = cases.log
    ids = {name: e.id for name, e in log.entries.items()}
    cases.add(
        "pending-listed",
        "the entries a seal lists are ancestors too",
        ["genesis", "grant-bob", "grant-hal", "hello", "reply"],
        log.entries["seal"],
        "pending",
        missing=[ids["ask"]],
    )
    body = seal_body(log, f3=[ids["hello"], ids["reply"]], f7=b"\5\5")
    named = ["hello", "reply", "ask", "grant-hal"]
    aside = log.header("aside", HAL, SEAL, body, parents=["reply"], listed=named, epoch=2)
    cases.add(
        "pending-request",
        "the request of a seal is listed too, where it is neither a parent nor among the entries",
        ["genesis", "grant-bob", "grant-hal", "hello", "reply"],
        signed(aside, HAL),
        "pending",
        missing=[ids["ask"]],
    )
    _seal_of(cases, "heads", "so are the membership heads of a seal", prev=b"", heads=[FAR])
    _seal_of(cases, "prev-seal", "so is its prev_seal", prev=FAR, heads=[ids["grant-hal"]])


def _seal_of(cases: Cases, name: str, comment: str, *, prev: bytes, heads: list[bytes]) -> None:
    """Add a seal that lists `FAR`, which is nowhere, as what it extends or was judged by."""
    fields: dict[str, object] = {"f8": heads, **({"f2": prev} if prev else {})}
    body = seal_body(cases.log, **fields)
    header = cases.log.header(name, HAL, SEAL, body, parents=["ask"], listed=["grant-hal"], epoch=2)
    cases.add(f"pending-{name}", comment, BASE, signed(header, HAL), "pending", missing=[FAR])


def released(cases: Cases) -> None:
    """Add entries that let others in."""
    late = cases.log.entries
    cases.add(
        "released",
        "what waited comes in with what it waited for",
        ["genesis", "grant-bob", "reply", "ask"],
        late["hello"],
        "admitted",
        admitted=["hello", "reply", "ask"],
    )
    cases.add("released-by-grant", "a grant lets the granted key's entries in",
              ["genesis", "hello", "reply"], late["grant-bob"], "admitted",
              admitted=["grant-bob", "reply"])  # fmt: skip
    low = cases.log.header("low", ADA, MESSAGE, said("x"), parents=["hello"], epoch=2)
    low = replace(low, lamport=low.lamport - 1)
    cases.odd["released-low"] = signed(low, ADA)
    cases.add("released-refused", "a pending entry that breaks a rule once what it names is here is"
              " unknown again, and refused", ["genesis", "released-low", "hello"],
              cases.odd["released-low"], "refused", "LAMPORT_INVALID")  # fmt: skip


def strangers(cases: Cases) -> None:
    """Add entries of a key without a grant."""
    log = cases.log
    eve = log.header("eve", EVE, MESSAGE, said("x"), parents=["answer"])
    cases.add(
        "stranger", "waits for a grant that may never come", SEALED, signed(eve, EVE), "pending"
    )
    followed = log.header("by-eve", EVE, MESSAGE, said("y"), parents=["answer"], epoch=2)
    cases.odd["stranger-followed"] = signed(followed, EVE)
    reply = log.header("reply-eve", ADA, MESSAGE, said("x"), parents=["answer"])
    reply = replace(
        reply, parents=(cases.odd["stranger-followed"].id,), lamport=followed.lamport + 1
    )
    cases.add(
        "vouched",
        "what an entry of a granted author follows needs no grant",
        [*SEALED, "stranger-followed"],
        signed(reply, ADA),
        "admitted",
        admitted=["stranger-followed", "vouched"],
    )
    far = log.header("by-dan", DAN, MESSAGE, said("x"), parents=["answer"])
    cases.odd["of-dan"] = signed(far, DAN)
    brings = log.header("brings", EVE, MEMBER, grant(DAN, WRITER), epoch=3)
    cases.odd["of-eve"] = signed(brings, EVE)
    kept = log.header("keeps", ADA, MEMBER, grant(BOB, WRITER))
    lamport = max(kept.lamport, brings.lamport + 1)
    kept = replace(kept, parents=(cases.odd["of-eve"].id,), lamport=lamport)
    cases.add("vouched-grant", "a MEMBER entry of a stranger that came in so grants like any other",
              [*SEALED, "of-dan", "of-eve"], signed(kept, ADA), "admitted",
              admitted=["of-eve", "vouched-grant", "of-dan"])  # fmt: skip
    by_bob = log.header("by-bob", BOB, MEMBER, grant(EVE, WRITER))
    cases.add("grant-void", "a void grant still lets entries in: admission asks no roles",
              [*SEALED, "stranger"], signed(by_bob, BOB), "admitted",
              admitted=["grant-void", "stranger"])  # fmt: skip
