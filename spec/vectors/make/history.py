"""A conversation with hosts, and the expected verdict on each of its seals."""

from collections.abc import Iterable

from spec.vectors.make.build import (
    CANCEL,
    FORK,
    GENERATION,
    HOST,
    MESSAGE,
    READER,
    REQUEST,
    SEAL,
    WRITER,
    Key,
    NamedLog,
    generation,
    message,
    request,
    said,
    sha256,
    varint,
)

ADA, BEA, BOB, CAT, EVE, HAL, IDA = (
    Key(n) for n in ("ada", "bea", "bob", "cat", "eve", "hal", "ida")
)


def tail(tip: str | None, entries: list[str], frontier: list[str]) -> dict[str, object]:
    return {"tip": tip, "entries": entries, "frontier": sorted(frontier)}


def next_seal(prev_seal: str | None, entries: list[str]) -> dict[str, object]:
    return {"prev_seal": prev_seal, "entries": entries}


class History(NamedLog):
    """A conversation of two owners, a writer, a reader and two hosts."""

    def __init__(self) -> None:
        """Write the genesis and the grants."""
        super().__init__((ADA, BEA))
        self.heads = ["genesis"]
        for key, role in ((BOB, WRITER), (EVE, READER), (HAL, HOST), (IDA, HOST)):
            self.grant(f"grant-{key.name}", ADA, key, role, parents=self.heads)
            self.heads = [f"grant-{key.name}"]
        self.seals: dict[str, dict[str, object]] = {}
        self.contexts: dict[str, list[str]] = {}

    def say(self, name: str, by: Key, *parents: str, **fields: object) -> None:
        """Write a message."""
        self.write(name, by, MESSAGE, said(name), parents=parents or ("genesis",), **fields)

    def ask(self, name: str, by: Key, *parents: str, host: Key = HAL, **fields: object) -> None:
        """Write a request."""
        self.write(name, by, REQUEST, request(host), parents=parents, **fields)

    def answer(self, name: str, seal: str, by: Key = HAL, **fields: object) -> None:
        """Write a generation."""
        self.write(name, by, GENERATION, generation(name), parents=[seal], **fields)

    def cancel(self, name: str, by: Key, *parents: str, **fields: object) -> None:
        """Write a CANCEL."""
        self.write(name, by, CANCEL, b"", parents=parents, **fields)

    def seal(
        self,
        name: str,
        asked: str,
        entries: Iterable[str],
        *,
        prev_seal: str | None = None,
        by: Key = HAL,
        void: str | None = None,
        covered: bool = True,
        parents: Iterable[str] | None = None,
        digest: bytes | None = None,
        heads: Iterable[str] | None = None,
        **fields: object,
    ) -> None:
        """Write a seal, and note the verdict expected of it."""
        names = list(entries)
        heads = self.heads if heads is None else list(heads)
        context = [*self.contexts.get(prev_seal or "", []), *names]
        content = message(
            {
                1: self.entries[asked].id,
                2: self.entries[prev_seal].id if prev_seal else b"",
                3: [self.entries[n].id for n in names],
                4: sha256(b"profile"),
                5: digest or self.context_digest(context),
                6: sha256(b"render"),
                7: b"".join(varint(1) for _ in names),
                8: sorted(self.entries[n].id for n in heads if n != "genesis"),
            }
        )
        listed = [asked, *names, *heads, *([prev_seal] if prev_seal else [])]
        where = [asked] if parents is None else parents
        self.write(name, by, SEAL, content, parents=where, listed=listed, **fields)
        if void is not None:
            self.seals[name] = {"verdict": "void", "reason": void}
        elif not covered:
            self.seals[name] = {"verdict": "uncovered"}
        else:
            self.contexts[name] = context
            digest_now = self.context_digest(context).hex()
            self.seals[name] = {
                "verdict": "counts",
                "prev_seal": prev_seal,
                "context": context,
                "context_digest": digest_now,
            }

    def first_turn(self) -> None:
        """Write one message, its request, seal and answer."""
        self.say("hello", ADA)
        self.ask("ask", ADA, "hello")
        self.seal("seal", "ask", ["hello", "ask"])
        self.answer("answer", "seal")

    def two_branches(self) -> None:
        """Write the first turn, and two turns that fork behind it."""
        self.first_turn()
        for side, by in (("left", ADA), ("right", BOB)):
            self.ask(side, by, "answer", basis="seal", conflict=FORK)
            self.seal(f"seal-{side}", side, ["answer", side], prev_seal="seal")
            self.answer(f"answer-{side}", f"seal-{side}")

    def sorted(self, *names: str) -> list[str]:
        """Return the names in (lamport, id) order."""
        return sorted(names, key=lambda n: (self.entries[n].header.lamport, self.entries[n].id))

    def vector(
        self,
        name: str,
        comment: str,
        *,
        tips: list[str],
        answers: dict[str, str | None],
        sealable: dict[str, object] | None = None,
        tails: list[dict[str, object]] | None = None,
    ) -> dict[str, object]:
        """Return the vector of this history."""
        return {
            "name": name,
            "comment": comment,
            **self.as_json(),
            "seals": self.seals,
            "tips": tips,
            "answers": answers,
            "sealable": sealable or {},
            "tails": tails or [],
        }
