"""receipt.json: findings and the fields of a receipt → digest, signed bytes, signature, message."""

import struct
from typing import Any

from spec.vectors.make.build import Key, Value, message, one_field, pae, sha256
from spec.vectors.make.misread import misread

TAG, FINDINGS_TAG = "antiphon/v1/receipt", "antiphon/v1/findings"
HOST = Key("host")
IDS = (
    "host", "conversation", "log_digest", "profile", "numerics_class", "findings_digest",
    "from_entry", "first",
)  # fmt: skip
JUDGE = ("profile", "numerics_class")
COUNTS = ("entries", "accepted", "differing", "undecided", "tokens", "refused", "open")

Vector = dict[str, Any]


def finding(name: str, outcome: int = 1, cause: int = 0, **more: int) -> Vector:
    """Return a finding of the answer with this name."""
    return {
        "answer": sha256(name.encode()).hex(),
        "render_digest": sha256(b"rendered " + name.encode()).hex(),
        "outcome": outcome,
        "cause": cause,
        "token_index": -1,
        "prompt_tokens": 40,
        "output_tokens": 12,
        "checked_tokens": 12,
        "differing_tokens": 0,
    } | more


def packed(
    found: Vector, order: str = "<", ids: tuple[str, ...] = ("answer", "render_digest")
) -> bytes:
    """Return the bytes of a finding."""
    numbers = struct.pack(
        f"{order}BBqQQQQ", found["outcome"], found["cause"], found["token_index"],
        found["prompt_tokens"], found["output_tokens"], found["checked_tokens"],
        found["differing_tokens"],
    )  # fmt: skip
    return b"".join(bytes.fromhex(found[name]) for name in ids) + numbers


def findings_digest(findings: list[Vector]) -> bytes:
    """Return the digest over findings."""
    ordered = sorted(findings, key=lambda found: found["answer"])
    return sha256(pae(FINDINGS_TAG, b"".join(map(packed, ordered))))


def pre_image(receipt: Vector) -> bytes:
    """Return the bytes that the host signs."""
    return pae(TAG, _ids(receipt) + _numbers(receipt))


def _ids(receipt: Vector) -> bytes:
    ids = [bytes.fromhex(receipt[name]) for name in IDS]
    for judge in receipt.get("further", ()):
        ids += [bytes.fromhex(judge[name]) for name in JUDGE]
    return b"".join(bytes([len(i)]) + i for i in ids)


def _numbers(receipt: Vector, order: str = "<") -> bytes:
    return struct.pack(
        f"{order}BBBQQQQQQQqQ", receipt["mode"], receipt["outcome"], receipt["first_cause"],
        *(int(receipt[name]) for name in COUNTS), receipt["first_token"],
        int(receipt["create_time_ms"]),
    )  # fmt: skip


def encode(receipt: Vector, signature: bytes) -> bytes:
    """Return the Receipt as a message."""
    first, further = receipt["first_token"], receipt.get("further", ())
    fields: dict[int, Value] = {
        1: bytes.fromhex(receipt["host"]),
        2: bytes.fromhex(receipt["conversation"]),
        3: bytes.fromhex(receipt["log_digest"]),
        4: int(receipt["entries"]),
        5: receipt["mode"],
        6: bytes.fromhex(receipt["from_entry"]),
        7: receipt["outcome"],
        8: int(receipt["accepted"]),
        9: int(receipt["differing"]),
        10: int(receipt["undecided"]),
        11: int(receipt["refused"]),
        12: int(receipt["open"]),
        13: int(receipt["tokens"]),
        14: bytes.fromhex(receipt["first"]),
        15: receipt["first_cause"],
    }
    behind: dict[int, Value] = {
        17: bytes.fromhex(receipt["profile"]),
        18: bytes.fromhex(receipt["numerics_class"]),
        19: bytes.fromhex(receipt["findings_digest"]),
        20: int(receipt["create_time_ms"]),
        21: signature,
    }
    optional = one_field(16, first) if first >= 0 else b""
    judges = [{n: bytes.fromhex(j[name]) for n, name in enumerate(JUDGE, 1)} for j in further]
    return message(fields) + optional + message(behind | {22: [message(one) for one in judges]})


def receipt_of(findings: list[Vector], **more: object) -> Vector:
    """Return the receipt of all findings, which are given in the order of the log."""
    counts = [sum(found["outcome"] == outcome for found in findings) for outcome in (1, 2, 3)]
    worst = 2 if counts[1] else 3 if counts[2] else 1
    first = next((f for f in findings if worst > 1 and f["outcome"] == worst), None)
    return {
        "host": HOST.public.hex(),
        "conversation": sha256(b"conversation").hex(),
        "log_digest": sha256(b"log").hex(),
        "entries": "23",
        "mode": 2,
        "from_entry": "",
        "outcome": worst,
        "accepted": str(counts[0]),
        "differing": str(counts[1]),
        "undecided": str(counts[2]),
        "refused": "1",
        "open": "0",
        "tokens": str(sum(found["checked_tokens"] for found in findings)),
        "first": first["answer"] if first else "",
        "first_cause": first["cause"] if first else 0,
        "first_token": first["token_index"] if first else -1,
        "profile": sha256(b"profile").hex(),
        "numerics_class": sha256(b"canary").hex(),
        "findings_digest": findings_digest(findings).hex(),
        "create_time_ms": "1700000000123",
    } | more


def _vector(
    name: str,
    comment: str,
    findings: list[Vector],
    *,
    rule: str | None = None,
    key: Key = HOST,
    signed: Vector | None = None,
    signature: bytes | None = None,
    **more: object,
) -> Vector:
    """Return a vector; `signed` is what the host signed, where that is another receipt."""
    receipt = receipt_of(findings, **more)
    data = pre_image(receipt)
    signature = signature or key.private.sign(data if signed is None else pre_image(signed))
    wrong = {} if rule else _misread(findings)
    return {
        "name": name,
        "comment": comment,
        "private_key": HOST.seed.hex(),
        "findings": findings,
        "receipt": receipt,
        "pre_image": data.hex(),
        "signature": signature.hex(),
        "message": encode(receipt, signature).hex(),
        "rule": rule,
        "misread": misread(receipt["findings_digest"], wrong),
    }


def _misread(findings: list[Vector]) -> dict[str, str]:
    ordered = sorted(findings, key=lambda found: found["answer"])
    data = b"".join(map(packed, ordered))
    swapped = ("render_digest", "answer")
    wrong = {"SHA-256 without the tag": sha256(data)}
    if findings:
        wrong |= {
            "numbers big-endian": sha256(
                pae(FINDINGS_TAG, b"".join(packed(f, ">") for f in ordered))
            ),
            "render digest before the answer": sha256(
                pae(FINDINGS_TAG, b"".join(packed(f, ids=swapped) for f in ordered))
            ),
            "no token index where there is none": sha256(
                pae(FINDINGS_TAG, b"".join(packed(f | {"token_index": 0}) for f in ordered))
            ),
        }
        if all(found["token_index"] >= 0 for found in findings):
            del wrong["no token index where there is none"]
    if findings != ordered:
        wrong["findings in the order of the log"] = sha256(
            pae(FINDINGS_TAG, b"".join(map(packed, findings)))
        )
    return {name: value.hex() for name, value in wrong.items()}


def _of_log() -> list[Vector]:
    """Return findings whose order in the log is not that of their ids."""
    found = [
        finding("answer 1"),
        finding("answer 2", outcome=3, cause=11, checked_tokens=0),
        finding("answer 3", outcome=2, cause=1, token_index=4, differing_tokens=8),
    ]
    return sorted(found, key=lambda one: one["answer"], reverse=True)


def _judge(name: str) -> dict[str, str]:
    """Return a further profile that judged."""
    return dict(zip(JUDGE, (sha256(f"{name} {of}".encode()).hex() for of in JUDGE), strict=True))


def _judges() -> list[dict[str, str]]:
    """Return two further profiles, in order."""
    return sorted((_judge("second"), _judge("third")), key=lambda judge: judge["profile"])


def _refused() -> list[Vector]:
    found = _of_log()
    good = receipt_of(found)
    data = pre_image(good)
    other = _of_log()
    other[1] = other[1] | {"checked_tokens": 1}
    bare = pae(TAG, b"".join(bytes.fromhex(good[name]) for name in IDS) + _numbers(good))
    turned = pae(TAG, _ids(good) + _numbers(good, ">"))
    untagged = data[16 + len(TAG) :]
    more = receipt_of(found, accepted="2")
    undecided = next(one for one in found if one["outcome"] == 3)
    of_other, further = findings_digest(other).hex(), _judges()

    def signed(pre: bytes) -> bytes:
        return HOST.private.sign(pre)

    return [
        _vector("signature-key", "another key signed", found, key=Key("eve"), rule="SIGNATURE"),
        _vector("signature-count", "a count was changed", found, signed=more, rule="SIGNATURE"),
        _vector("signature-lengths", "signed without the lengths of the ids", found,
                signature=signed(bare), rule="SIGNATURE"),
        _vector("signature-order", "numbers signed big-endian", found, signature=signed(turned),
                rule="SIGNATURE"),
        _vector("signature-tag", "signed without the tag", found, signature=signed(untagged),
                rule="SIGNATURE"),
        _vector("id-short", "a log digest of 31 bytes, correctly signed", found, rule="ID",
                log_digest=good["log_digest"][2:]),
        _vector("id-half", "half a first answer, correctly signed", found, rule="ID",
                first=good["first"][32:]),
        _vector("id-further", "half a further profile, correctly signed", found, rule="ID",
                further=[_judge("second") | {"profile": good["profile"][:32]}]),
        _vector("further-order", "further profiles that descend, correctly signed", found,
                rule="ORDER", further=further[::-1]),
        _vector("further-twice", "a further profile that is the first one, correctly signed",
                found, rule="ORDER", further=[_judge("second") | {"profile": good["profile"]}]),
        _vector("signature-further", "a further profile was left out", found, rule="SIGNATURE",
                further=further[:1], signed=receipt_of(found, further=further)),
        _vector("findings", "correctly signed, but of other findings", found, rule="FINDINGS",
                findings_digest=of_other),
        _vector("findings-outcome", "with the right digest, but a better verdict", found,
                rule="FINDINGS", outcome=1, first="", first_cause=0, first_token=-1),
        _vector("findings-counts", "with other counts of answers", found, rule="FINDINGS",
                accepted="2", differing="0"),
        _vector("findings-tokens", "with another count of tokens", found, rule="FINDINGS",
                tokens="23"),
        _vector("findings-first", "with a first answer that is undecided", found,
                rule="FINDINGS", first=undecided["answer"], first_cause=11, first_token=-1),
        _vector("findings-cause", "with another cause of the first answer", found,
                rule="FINDINGS", first_cause=4),
        _vector("findings-token", "with another token of the first answer", found,
                rule="FINDINGS", first_token=3),
        _vector("findings-verdict", "with another verdict alone", found, rule="FINDINGS",
                outcome=3),
        _vector("findings-id", "with another first answer alone", found, rule="FINDINGS",
                first=undecided["answer"]),
        _vector("further-repeated", "a further profile given twice, correctly signed", found,
                rule="ORDER", further=[further[0]] * 2),
        _vector("findings-twice", "two findings of one answer", [*found, found[0]],
                rule="FINDINGS"),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    large = finding("answer", prompt_tokens=2**32, output_tokens=2**31, checked_tokens=2**31)
    entry = sha256(b"entry").hex()
    differing = [
        finding(name, outcome=2, cause=1, token_index=token, differing_tokens=1)
        for name, token in (("answer 1", 4), ("answer 2", 7))
    ]
    return {
        "file": "receipt",
        "spec": "spec/07-host §10",
        "comment": "`findings`, in the order of the log, and the fields of a `receipt` →"
        " `findings_digest`, the `pre_image` that the host signs, and the Receipt as a `message`."
        " `rule` not null: a client refuses the receipt, by that rule. `misread`: what a misreading"
        " would give as findings digest.",
        "rules": [
            "A client refuses a receipt unless its first answer, cause and token are those of one"
            " finding that has its outcome, or none where it is ACCEPTED. Whether an earlier answer"
            " has this outcome is the host's to state: findings have no lamport.",
        ],
        "vectors": [
            _vector("accepted", "one answer, nothing differs", [finding("answer")]),
            _vector("none", "no answers", []),
            _vector("mixed", "three answers; the first that differs is named", _of_log()),
            _vector("undecided", "a cause without a token", [
                finding("answer", outcome=3, cause=10, differing_tokens=2, checked_tokens=12),
            ]),
            _vector("first-token", "index 0 is an index", [
                finding("answer", outcome=2, cause=1, token_index=0, differing_tokens=12),
            ]),
            _vector("rebuild", "from an entry on, and nothing checked", [
                finding("answer", checked_tokens=0),
            ], mode=1, from_entry=entry),
            _vector("further", "two further profiles judged answers of theirs", _of_log(),
                    further=_judges()),
            _vector("first-later", "it names the second answer that differs", differing,
                    first=differing[1]["answer"], first_token=7),
            _vector("large", "numbers of more than 4 bytes", [large], entries=str(2**40),
                    create_time_ms=str(2**41)),
            *_refused(),
        ],
    }  # fmt: skip
