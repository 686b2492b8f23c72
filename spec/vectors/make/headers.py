"""entry.json: header fields → bytes, id and signature."""

from dataclasses import replace

from spec.vectors.make.build import (
    CONVERSATION,
    FORK,
    JOIN,
    MESSAGE,
    REQUEST,
    Header,
    Key,
    NamedLog,
    one_field,
    pae,
    request,
    said,
    sha256,
    signed,
)

OWNER_KEY = Key("ada")


def _vector(name: str, comment: str, header: Header, unknown: bytes = b"") -> dict[str, object]:
    entry = signed(header, OWNER_KEY, header.encode() + unknown)
    return {
        "name": name,
        "comment": comment,
        "private_key": OWNER_KEY.seed.hex(),
        "fields": {
            "conversation": header.conversation.hex(),
            "author": header.author.hex(),
            "epoch": str(header.epoch),
            "track": header.track,
            "seq": header.seq,
            "prev": header.prev.hex(),
            "parents": [p.hex() for p in sorted(header.parents)],
            "basis": header.basis.hex(),
            "lamport": header.lamport,
            "kind": header.kind,
            "critical": bool(header.critical),
            "body_digest": sha256(header.body).hex(),
            "body_bytes": len(header.body),
            "create_time_ms": header.create_time_ms,
            "conflict": header.conflict,
        },
        "body": header.body.hex(),
        "header": entry.header_bytes.hex(),
        "id_pre_image": pae("antiphon/v1/entry", entry.header_bytes).hex(),
        "id": entry.id.hex(),
        "signature": entry.signature.hex(),
        "canonical": not unknown,
    }


def build() -> dict[str, object]:
    """Return the file."""
    log = NamedLog((OWNER_KEY,))
    log.write("first", OWNER_KEY, MESSAGE, said("Hello."))
    first = log.entries["first"].header
    asked = log.header("ask", OWNER_KEY, REQUEST, request(Key("host")), parents=["first"])
    empty = log.header("join", OWNER_KEY, JOIN, b"", parents=["first"], track=CONVERSATION)
    ids = sorted(sha256(bytes([i])) for i in range(64))
    many = replace(empty, parents=tuple(ids))
    vectors = [
        _vector("genesis", "no conversation, track, parents", log.entries["genesis"].header),
        _vector("message", "seq 0 and conflict 0 are left out", first),
        _vector("request", "seq 1 names prev", asked),
        _vector("forking", "a request that forks", replace(asked, conflict=FORK)),
        _vector("join", "an empty body is its 16 bytes of salt", empty),
        _vector("parents", "64 parents, ascending", many),
        _vector(
            "greatest",
            "the greatest epoch, seq and lamport",
            replace(asked, epoch=2**64 - 1, seq=2**53 - 1, lamport=2**53 - 1),
        ),
        _vector(
            "critical", "an unknown kind, marked critical", replace(empty, kind=99, critical=1)
        ),
        _vector(
            "unknown-fields",
            "fields of a newer version are hashed and carried as they came",
            first,
            unknown=one_field(16, 7) + one_field(16, b"x") + one_field(1000, b""),
        ),
    ]
    return {
        "file": "entry",
        "spec": "spec/02-entry",
        "comment": "Serialise `fields` to `header`; hash and sign it. `canonical` false: the header"
        " holds fields this version does not know, so `fields` alone does not yield it.",
        "vectors": vectors,
    }
