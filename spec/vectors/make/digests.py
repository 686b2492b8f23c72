"""digest.json: sorted lane heads → pre-image and digest."""

from spec.vectors.make.build import Key, head_bytes, pae, sha256

Head = tuple[bytes, int, int, int, bytes]


def _vector(name: str, comment: str, heads: list[Head]) -> dict[str, object]:
    data = pae("antiphon/v1/digest", b"".join(head_bytes(*head) for head in sorted(heads)))
    return {
        "name": name,
        "comment": comment,
        "heads": [
            {"author": a.hex(), "epoch": str(e), "track": t, "seq": s, "id": i.hex()}
            for a, e, t, s, i in heads
        ],
        "pre_image": data.hex(),
        "digest": sha256(data).hex(),
    }


def build() -> dict[str, object]:
    """Return the file."""
    a, b = sorted(Key(n).public for n in ("ada", "bob"))
    ids = [sha256(bytes([i])) for i in range(4)]
    low, high = sorted(ids[2:])
    return {
        "file": "digest",
        "spec": "spec/03-order §5",
        "comment": "Sort `heads` by author, epoch, track, seq, id, encode each in 81 bytes,"
        " tag and hash.",
        "vectors": [
            _vector("none", "no heads at all", []),
            _vector("genesis", "one head on track 0", [(a, 1, 0, 0, ids[0])]),
            _vector(
                "sorted",
                "given in another order: numbers compare as numbers, not as their bytes",
                [(b, 1, 1, 3, ids[0]), (a, 256, 1, 3, ids[1]), (a, 2, 3, 0, low),
                 (a, 2, 1, 9, high)],
            ),
            _vector(
                "forked",
                "a forked lane has several heads, of any seq",
                [(a, 1, 1, 5, high), (a, 1, 1, 5, low), (a, 1, 1, 2, ids[0])],
            ),
            _vector("greatest", "the greatest numbers", [(a, 2**64 - 1, 3, 2**53 - 1, ids[0])]),
        ],
    }  # fmt: skip
