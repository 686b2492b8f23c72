"""The log of admission.json, and the vectors collected over it."""

from spec.vectors.make.build import (
    HOST,
    MESSAGE,
    REQUEST,
    SEAL,
    WRITER,
    Built,
    Key,
    NamedLog,
    generation,
    message,
    request,
    said,
    sha256,
)

ADA, BOB, EVE, HAL = Key("ada"), Key("bob"), Key("eve"), Key("hal")
DAN = Key("dan")
SALT = sha256(b"salt")[:16]
BASE = ["genesis", "grant-bob", "grant-hal", "hello", "reply", "ask"]
SEALED = [*BASE, "seal", "answer"]


def admission_log() -> NamedLog:
    """Write one answered turn with its members."""
    log = NamedLog((ADA,))
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("grant-hal", ADA, HAL, HOST, parents=["grant-bob"])
    log.write("hello", ADA, MESSAGE, said("Hello."))
    log.write("reply", BOB, MESSAGE, said("Hi."), parents=["hello"])
    log.write("ask", ADA, REQUEST, request(HAL), parents=["reply"])
    log.write("seal", HAL, SEAL, seal_body(log), parents=["ask"], listed=["grant-hal"])
    log.write("answer", HAL, 7, generation("Good day."), parents=["seal"], basis="seal")
    return log


def seal_body(log: NamedLog, **fields: object) -> bytes:
    """Return the body of the log's seal; `f3=…` replaces its field 3."""
    listed = ["hello", "reply", "ask"]
    known: dict[int, object] = {
        1: log.entries["ask"].id,
        3: [log.entries[n].id for n in listed],
        4: sha256(b"profile"),
        5: log.context_digest(listed),
        6: sha256(b"render"),
        7: b"\x05\x05\x05",
        8: [log.entries["grant-hal"].id],
    }
    known.update({int(k[1:]): v for k, v in fields.items()})
    return message(known)  # type: ignore[arg-type]


class Cases:
    """The vectors, with the odd entries beside the log, whose lanes stay correct."""

    def __init__(self, log: NamedLog) -> None:
        self.log = log
        self.odd: dict[str, Built] = {}
        self.vectors: list[dict[str, object]] = []

    def add(
        self,
        name: str,
        comment: str,
        given: list[str],
        entry: Built,
        verdict: str,
        reason: str | None = None,
        missing: list[bytes] | None = None,
        admitted: list[str] | None = None,
    ) -> None:
        """Add one vector; an entry that the log lacks is kept under `name`."""
        known = [n for n, e in self.log.entries.items() if e is entry]
        if not known:
            assert name not in self.odd, name
            self.odd[name] = entry
        self.vectors.append(
            {
                "name": name,
                "comment": comment,
                "given": given,
                "entry": known[0] if known else name,
                "verdict": verdict,
                "reason": reason,
                "missing": [i.hex() for i in missing or []],
                "admitted": admitted or ([known[0] if known else name] * (verdict == "admitted")),
            }
        )

    def refused(self, name: str, reason: str, comment: str, entry: Built) -> None:
        """Add an entry that the whole log refuses."""
        self.add(name, comment, SEALED, entry, "refused", reason)
