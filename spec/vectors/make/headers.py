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


def entry_vector(
    name: str, comment: str, header: Header, unknown: bytes = b"", key: Key = OWNER_KEY
) -> dict[str, object]:
    """Return the vector of an entry, signed by `key`."""
    entry = signed(header, key, header.encode() + unknown)
    return {
        "name": name,
        "comment": comment,
        "private_key": key.seed.hex(),
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
        entry_vector("genesis", "no conversation, track, parents", log.entries["genesis"].header),
        entry_vector("message", "seq 0 and conflict 0 are left out", first),
        entry_vector("request", "seq 1 names prev", asked),
        entry_vector("forking", "a request that forks", replace(asked, conflict=FORK)),
        entry_vector("join", "an empty body is its 16 bytes of salt", empty),
        entry_vector("parents", "64 parents, ascending", many),
        entry_vector(
            "greatest",
            "the greatest epoch, seq and lamport",
            replace(asked, epoch=2**64 - 1, seq=2**53 - 1, lamport=2**53 - 1),
        ),
        entry_vector(
            "critical", "an unknown kind, marked critical", replace(empty, kind=99, critical=1)
        ),
        entry_vector(
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
