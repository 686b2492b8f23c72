"""Vectors of answers, from their own inputs and the text of the chapters: digests of contexts,
draws, drafts and receipts.
"""

import json
import math
import struct
from decimal import Decimal, localcontext

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.vectors.plain import Vector, file_of, pae, sha256, unhex, vectors_of

# --- profiles: 07 §1 --------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors_of("profile"))
def test_profile_digests_follow_from_the_fields(vector: Vector) -> None:
    f = vector["fields"]
    digests = ("weights", "tokenizer", "template", "render_recipe", "sampler")
    values = [f["name"].encode(), *(unhex(f[f"{name}_digest"]) for name in digests)]
    values += [f["numerics"].encode(), struct.pack("<I", f["context_tokens_max"])]
    values += [b"\1" if f["has_tools"] else b"\0", f["grammar_engine"].encode()]
    content = b"".join(struct.pack("<I", len(value)) + value for value in values)
    assert content.hex() == vector["content"]
    assert sha256(pae(b"antiphon/v1/profile", content)).hex() == vector["digest"]


# --- digests of rendering: 07 §2 ---------------------------------------------------------------

RENDER = file_of("render")


def test_digests_of_rendering_follow_from_the_texts() -> None:
    raw = RENDER["tokenizer"]
    parts = [raw[name] for name in ("model", "pre", "tokens", "types", "merges")]
    data = json.dumps(parts, separators=(",", ":")).encode()
    assert sha256(b"antiphon/v1/tokenizer\0" + data).hex() == raw["digest"]
    for template in RENDER["templates"].values():
        texts = [template[name].encode() for name in ("source", "bos_token", "eos_token")]
        framed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        assert sha256(pae(b"antiphon/v1/template", framed)).hex() == template["digest"]
    formats, recipe = RENDER["formats"], RENDER["recipe"]
    digest = sha256(pae(b"antiphon/v1/tool-formats", formats["text"].encode()))
    assert digest.hex() == formats["digest"]
    assert unhex(recipe["bytes"]).endswith(digest)
    of_recipe = sha256(pae(b"antiphon/v1/render-recipe", unhex(recipe["bytes"])))
    assert of_recipe.hex() == recipe["digest"]


@pytest.mark.parametrize("vector", vectors_of("render"))
def test_render_digests_follow_from_the_tokens(vector: Vector) -> None:
    if vector["reason"] is not None:
        assert vector["tokens"] is None
        return
    template = RENDER["templates"][vector["template"]]
    seed = [RENDER["tokenizer"]["digest"], template["digest"], RENDER["recipe"]["digest"]]
    digest = sha256(pae(b"antiphon/v1/render", b"".join(map(unhex, seed))))
    tokens = iter(vector["tokens"])
    for seal, expected in zip(vector["seals"], vector["render_digests"], strict=True):
        for entry, rendered in zip(seal["entries"], tokens, strict=False):
            assert rendered["entry"] == entry["id"]
            ids = unhex(rendered["ids"])
            digest = sha256(digest + unhex(entry["id"]) + struct.pack("<I", len(ids) // 4) + ids)
        assert digest.hex() == expected
    assert next(tokens, None) is None
    assert digest.hex() not in vector["misread"].values()


# --- the draw: 07 §3 --------------------------------------------------------------------------


def _scores(vector: Vector) -> list[float]:
    raw = unhex(vector["logits"])
    scores = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    s, mask = vector["sampling"], vector["mask"]
    if mask is not None:
        bits = int.from_bytes(unhex(mask), "little")
        scores = [x if bits >> i & 1 else -math.inf for i, x in enumerate(scores)]
    if vector["output_index"] < vector["output_tokens_min"]:
        others = [x for i, x in enumerate(scores) if i not in vector["end_ids"]]
        if max(others) > -math.inf:
            scores = [-math.inf if i in vector["end_ids"] else x for i, x in enumerate(scores)]
    window = vector["context"][-s["penalty_window"] :]
    bias = dict(s["logit_bias"])
    for token in {*bias, *window}:
        x, seen = scores[token] + bias.get(token, 0), window.count(token)
        if seen and s["repetition_penalty"]:
            x = x / s["repetition_penalty"] if x > 0 else x * s["repetition_penalty"]
        if seen:
            x = x - seen * s["frequency_penalty"] - s["presence_penalty"]
        scores[token] = struct.unpack("<f", struct.pack("<f", x))[0]
    return scores


def _weight(below: float, temperature: float) -> int:
    scale = float.fromhex("0x1.71547652b82fep+6") / temperature
    c1, c2, c3 = map(
        float.fromhex, ("0x1.62e42fefa39efp-7", "0x1.ebfbdff82c58fp-15", "0x1.c6b08d704a0c0p-23")
    )
    t = below * scale
    if t > 2240:
        return 0
    n = round(t)
    r = t - n
    with localcontext() as context:
        context.prec = 50
        power = float(Decimal(2) ** (Decimal(-n % 64) / 64))
    return round((((-c3 * r + c2) * r - c1) * r + 1) * math.ldexp(power, 34 + (-n // 64)))


@pytest.mark.parametrize("vector", vectors_of("draw"))
def test_a_draw_follows_from_logits_and_request(vector: Vector) -> None:
    scores, s = _scores(vector), vector["sampling"]
    assert struct.pack(f"<{len(scores)}f", *scores).hex() == vector["scores"]
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert order == vector["order"]
    assert vector["token"] not in vector["misread"].values()
    if s["temperature"] == 0:
        assert vector["token"] == order[0]
        return
    weights = [_weight(scores[order[0]] - x, s["temperature"]) for x in scores]
    assert weights == vector["weights"]
    left = order[: s["top_k"] or None]
    if 0 < s["top_p"] < 1:
        share, mass = math.ceil(s["top_p"] * float(sum(weights[i] for i in left))), 0
        left = [i for i in left if (mass := mass + weights[i]) - weights[i] < share]
    left = [i for i in left if weights[i] >= s["min_p"] * 2.0**34]
    kept = [weight if i in left else 0 for i, weight in enumerate(weights)]
    assert (kept, str(sum(kept))) == (vector["kept"], vector["sum"])
    data = b"antiphon/v1/draw" + struct.pack("<QQ", int(s["seed"]), vector["output_index"])
    word = int.from_bytes(sha256(data)[:8], "big")
    assert (data.hex(), str(word)) == (vector["pre_image"], vector["word"])
    target = word * sum(kept) // 2**64
    assert str(target) == vector["target"]
    assert vector["token"] == next(i for i in range(len(kept)) if sum(kept[: i + 1]) > target)


# --- drafts: 04 §6 ----------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors_of("drafts"))
def test_drafts_follow_from_tokens_and_visible_bytes(vector: Vector) -> None:
    rule, digest = _broken_rule(vector, vector["frames"])
    assert rule == vector["rule"]
    assert vector["rule"] or digest.hex() not in vector["misread"].values()
    if vector["rule"]:
        assert _broken_rule(vector, [*vector["frames"][:-1], vector["then"]])[0] is None


def _broken_rule(vector: Vector, frames: list[Vector]) -> tuple[str | None, bytes]:
    """Return the rule that the last frame breaks, if any, and the digest of all tokens."""
    request, run = unhex(vector["request"]), struct.pack("<Q", int(vector["run"]))
    digest = sha256(pae(b"antiphon/v1/draft-stream", request + run))
    assert digest.hex() == vector["start_digest"]
    key = Ed25519PrivateKey.from_private_bytes(unhex(vector["private_key"]))
    tokens = size = 0
    broken: list[str] = []
    for frame in frames:
        for token in frame["token_ids"]:
            digest = sha256(digest + struct.pack("<I", token))
        data = unhex(frame["data"])
        numbers = struct.pack(
            "<III", frame["token_offset"], len(frame["token_ids"]), frame["byte_offset"]
        )
        fields = unhex(vector["conversation"]) + request + run + numbers
        pre_image = pae(b"antiphon/v1/draft", fields + sha256(data) + unhex(frame["digest"]))
        assert pre_image.hex() == frame["pre_image"]
        offsets = frame["token_offset"], frame["byte_offset"]
        rules = {
            "SIGNATURE": key.sign(pre_image).hex() == frame["signature"],
            "OFFSET": offsets == (tokens, size),
            "DIGEST": digest.hex() == frame["digest"],
            "PROGRESS": bool(frame["token_ids"] or data) or not (tokens or size),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        tokens, size = tokens + len(frame["token_ids"]), size + len(data)
    return (broken[0] if broken else None), digest


# --- receipts: 07 §10 -------------------------------------------------------------------------


def _sums_up(receipt: Vector, findings: list[Vector]) -> bool:
    outcomes = [found["outcome"] for found in findings]
    worst = next((outcome for outcome in (2, 3) if outcome in outcomes), 1)
    sums = [outcomes.count(1), outcomes.count(2), outcomes.count(3)]
    sums.append(sum(found["checked_tokens"] for found in findings))
    stated = [int(receipt[n]) for n in ("accepted", "differing", "undecided", "tokens")]
    named = [(f["answer"], f["cause"], f["token_index"]) for f in findings if f["outcome"] == worst]
    first = (receipt["first"], receipt["first_cause"], receipt["first_token"])
    is_first = first in (named if worst > 1 else [("", 0, -1)])
    once = len({found["answer"] for found in findings}) == len(findings)
    return is_first and once and (receipt["outcome"], stated) == (worst, sums)


@pytest.mark.parametrize("vector", vectors_of("receipt"))
def test_a_receipt_follows_from_findings(vector: Vector) -> None:
    data = b""
    for found in sorted(vector["findings"], key=lambda found: found["answer"]):
        data += unhex(found["answer"]) + unhex(found["render_digest"])
        data += bytes([found["outcome"], found["cause"]])
        names = ("prompt_tokens", "output_tokens", "checked_tokens", "differing_tokens")
        data += struct.pack("<q4Q", found["token_index"], *(found[name] for name in names))
    digest, receipt = sha256(pae(b"antiphon/v1/findings", data)).hex(), vector["receipt"]
    assert digest not in vector["misread"].values()
    names = ("host", "conversation", "log_digest", "profile", "numerics_class", "findings_digest",
             "from_entry", "first")  # fmt: skip
    judges = receipt.get("further", ())
    ids = [*(receipt[n] for n in names), *(j[n] for j in judges for n in names[3:5])]
    fields = b"".join(bytes([len(unhex(one))]) + unhex(one) for one in ids)
    fields += bytes([receipt["mode"], receipt["outcome"], receipt["first_cause"]])
    counts = ("entries", "accepted", "differing", "undecided", "tokens", "refused", "open")
    fields += struct.pack("<7Q", *(int(receipt[n]) for n in counts))
    fields += struct.pack("<qQ", receipt["first_token"], int(receipt["create_time_ms"]))
    pre_image = pae(b"antiphon/v1/receipt", fields)
    assert pre_image.hex() == vector["pre_image"]
    key = Ed25519PrivateKey.from_private_bytes(unhex(vector["private_key"]))
    whole = all(len(one) == 64 for one in (*ids[:6], *ids[8:]))
    whole = whole and all(len(one) in (0, 64) for one in ids[6:8])
    profiles = [judge["profile"] for judge in judges]
    rules = {
        "ID": whole,
        "ORDER": profiles == sorted({*profiles} - {receipt["profile"]}),
        "SIGNATURE": key.sign(pre_image).hex() == vector["signature"],
        "FINDINGS": digest == receipt["findings_digest"] and _sums_up(receipt, vector["findings"]),
    }
    broken = next((rule for rule, holds in rules.items() if not holds), None)
    assert broken == vector["rule"]
