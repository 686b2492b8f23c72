"""proof.json: the client's half of Authenticate, by the transcript of spec/04-link §3."""

from spec.vectors.make import curve
from spec.vectors.make.build import Key, pae, sha256
from spec.vectors.make.curve import BASE, encode, multiply
from spec.vectors.make.misread import misread

HUB, ADA, EVE = Key("hub"), Key("ada"), Key("eve")
NONCE, HUB_NONCE = sha256(b"nonce of ada"), sha256(b"nonce of the hub")
CERTIFICATE, NOW, EXPIRY = sha256(b"a certificate"), 1_700_000_000_000, 1_700_000_900_000


def _transcript(role: int, *, certificate: bytes = CERTIFICATE, **changed: bytes) -> bytes:
    fields = {
        "hub": HUB.public,
        "client": ADA.public,
        "nonce": NONCE,
        "hub_nonce": HUB_NONCE,
        "certificate": certificate,
        "expiry": EXPIRY.to_bytes(8, "little"),
        "role": bytes([role]),
        **changed,
    }
    return b"".join(fields.values())


def _signature(key: Key, data: bytes, tag: str = "antiphon/v1/authenticate") -> bytes:
    return key.private.sign(pae(tag, data))


def _vector(name: str, comment: str, reason: str | None, **changed: object) -> dict[str, object]:
    given: dict[str, object] = {
        "private_key": ADA.seed.hex(),
        "client_nonce": NONCE.hex(),
        "pinned": HUB.public.hex(),
        "seen_certificate": CERTIFICATE.hex(),
        "now_ms": str(NOW),
        "hub_key": HUB.public.hex(),
        "hub_nonce": HUB_NONCE.hex(),
        "stated_certificate": CERTIFICATE.hex(),
        "expire_time_ms": str(EXPIRY),
        "hub_signature": _signature(HUB, _transcript(1)).hex(),
        **changed,
    }
    certificate = bytes.fromhex(str(given["stated_certificate"]))
    mine = _transcript(2, certificate=certificate)
    right = None if reason else _signature(ADA, mine).hex()
    wrong = {
        "role of the hub": _signature(ADA, _transcript(1, certificate=certificate)),
        "no role": _signature(ADA, mine[:-1]),
        "no tag": ADA.private.sign(mine),
        "expiry big-endian": _signature(ADA, mine[:-9] + mine[-9:-1][::-1] + mine[-1:]),
        "client first": _signature(ADA, ADA.public + HUB.public + mine[64:]),
        "nonces swapped": _signature(ADA, mine[:64] + HUB_NONCE + NONCE + mine[128:]),
    }
    return {
        "name": name,
        "comment": comment,
        **given,
        "reason": reason,
        "pre_image": pae("antiphon/v1/authenticate", mine).hex() if right else None,
        "signature": right,
        "misread": misread(right, {n: v.hex() for n, v in wrong.items()}) if right else {},
    }


def build() -> dict[str, object]:
    """Return the file."""
    zeros = bytes(32).hex()
    plain = _signature(HUB, _transcript(1, certificate=bytes(32))).hex()
    of_eve = _signature(EVE, _transcript(1, hub=EVE.public)).hex()
    of_nobody = (encode(multiply(2, BASE)) + (2).to_bytes(32, "little")).hex()
    bad = "PROOF_INVALID"
    return {
        "file": "proof",
        "spec": "spec/04-link §3",
        "comment": "A client with `private_key` and `client_nonce` gets the hub's challenge."
        " `reason` null: it returns `signature`.",
        "vectors": [
            _vector("tls", "the digest of a certificate is signed by both", None),
            _vector("plain", "without TLS the digest is zeros", None, seen_certificate=zeros,
                    stated_certificate=zeros, hub_signature=plain),
            _vector("first-contact", "no key is pinned yet", None, pinned=None),
            _vector("last-moment", "one millisecond before the expiry", None,
                    now_ms=str(EXPIRY - 1)),
            _vector("pin", "the hub has another key than the one pinned, and proves it",
                    "PEER_IDENTITY_CHANGED", hub_key=EVE.public.hex(), hub_signature=of_eve),
            _vector("pin-first", "that is looked at first: nothing else of it holds",
                    "PEER_IDENTITY_CHANGED", hub_key=EVE.public.hex(), seen_certificate=zeros),
            _vector("certificate", "the hub proves another certificate than the one seen", bad,
                    seen_certificate=zeros),
            _vector("certificate-unseen", "the hub proves a certificate, and none is seen", bad,
                    seen_certificate=""),
            _vector("certificate-unstated", "the hub proves none, and one is seen", bad,
                    stated_certificate=zeros, hub_signature=plain),
            _vector("expired", "at its expiry a challenge is no longer valid", bad,
                    now_ms=str(EXPIRY)),
            _vector("nonce-short", "a hub nonce of 31 bytes, signed", bad,
                    hub_nonce=HUB_NONCE[:31].hex(),
                    hub_signature=_signature(HUB, _transcript(1, hub_nonce=HUB_NONCE[:31])).hex()),
            _vector("certificate-short", "a digest of 31 bytes on both sides, signed", bad,
                    stated_certificate=CERTIFICATE[:31].hex(),
                    seen_certificate=CERTIFICATE[:31].hex(),
                    hub_signature=_signature(
                        HUB, _transcript(1, certificate=CERTIFICATE[:31])).hex()),
            _vector("role", "the hub signed with the role of a client", bad,
                    hub_signature=_signature(HUB, _transcript(2)).hex()),
            _vector("untagged", "the hub signed without the tag", bad,
                    hub_signature=HUB.private.sign(_transcript(1)).hex()),
            _vector("other-client", "the hub signed for another client", bad,
                    hub_signature=_signature(HUB, _transcript(1, client=EVE.public)).hex()),
            _vector("other-nonce", "the hub signed another nonce of the client", bad,
                    hub_signature=_signature(HUB, _transcript(1, nonce=HUB_NONCE)).hex()),
            _vector("small-order", "the hub's key is of order 1: anybody signs under it", bad,
                    pinned=None, hub_key=encode(curve.IDENTITY).hex(), hub_signature=of_nobody),
            _vector("other-expiry", "the hub signed another expiry", bad,
                    expire_time_ms=str(EXPIRY + 1)),
        ],
    }  # fmt: skip
