"""signature.json: the Ed25519 rules on which libraries differ, one broken each."""

from collections.abc import Iterator

from spec.vectors.make import curve
from spec.vectors.make.build import Key, sha256
from spec.vectors.make.curve import BASE, IDENTITY, L, P, Point, encode, multiply

SECRET = int.from_bytes(sha256(b"antiphon vector scalar"), "little") % L
NONCE = int.from_bytes(sha256(b"antiphon vector nonce"), "little") % L
TORSION = curve.torsion()
MESSAGES_MAX = 1000

KEY, SIGNATURE = "KEY_INVALID", "SIGNATURE_INVALID"


def _messages() -> Iterator[bytes]:
    for i in range(MESSAGES_MAX):
        yield f"message {i}".encode()


def _scalar(value: int) -> bytes:
    return value.to_bytes(32, "little")


def _vector(
    name: str, comment: str, key: bytes, message: bytes, signature: bytes, reason: str | None
) -> dict[str, object]:
    return {
        "name": name,
        "comment": comment,
        "public_key": key.hex(),
        "message": message.hex(),
        "signature": signature.hex(),
        "reason": reason,
    }


def _plain() -> list[dict[str, object]]:
    key = Key("ada")
    message = b"what was signed"
    good = key.private.sign(message)
    r, s = good[:32], int.from_bytes(good[32:], "little")
    rfc = (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    )
    return [
        _vector("valid", "RFC 8032 §7.1, test 2", *map(bytes.fromhex, rfc), None),
        _vector("valid", "any message", key.public, message, good, None),
        _vector("equation", "another message", key.public, b"another", good, SIGNATURE),
        _vector("equation", "another key", Key("bob").public, message, good, SIGNATURE),
        _vector("equation", "one bit of R", key.public, message,
                bytes([good[0] ^ 1]) + good[1:], SIGNATURE),
        _vector("s-range", "S + L: the equation holds", key.public, message,
                r + _scalar(s + L), SIGNATURE),
        _vector("s-range", "S = L", key.public, message, r + _scalar(L), SIGNATURE),
        _vector("length", "a signature of 63 bytes", key.public, message, good[:63], SIGNATURE),
        _vector("length", "a signature of 65 bytes", key.public, message, good + b"\0", SIGNATURE),
        _vector("length", "no signature", key.public, message, b"", SIGNATURE),
        _vector("length", "a key of 31 bytes", key.public[:31], message, good, KEY),
    ]  # fmt: skip


def _small_keys() -> list[dict[str, object]]:
    """Sign under each point of small order so that the equation holds."""
    vectors = []
    r = encode(multiply(NONCE, BASE))
    for index, point in enumerate(TORSION):
        key = encode(point)
        for message in _messages():
            if multiply(curve.challenge(r, key, message), point) == IDENTITY:
                break
        comment = f"A is {index} times a point of order 8; the equation holds"
        vectors.append(_vector("a-order", comment, key, message, r + _scalar(NONCE), KEY))
    return vectors


def _small_r() -> list[dict[str, object]]:
    """Sign with R of small order so that the equation holds, by a key with torsion."""
    key_point = curve.add(multiply(SECRET, BASE), TORSION[1])
    key = encode(key_point)
    vectors = []
    for index, point in enumerate(TORSION):
        r = encode(point)
        for message in _messages():
            h = curve.challenge(r, key, message)
            if curve.negate(TORSION[h % 8]) == point:
                break
        comment = f"R is {index} times a point of order 8; the equation holds"
        signature = r + _scalar(h * SECRET % L)
        vectors.append(_vector("r-order", comment, key, message, signature, SIGNATURE))
    return vectors


def _noncanonical() -> list[dict[str, object]]:
    message = b"message"
    identity = (P + 1).to_bytes(32, "little")
    y = next(y for y in range(2, 19) if curve.x_of(y, 0) is not None)
    large = (P + y).to_bytes(32, "little")
    off = next(y for y in range(2, 19) if curve.x_of(y, 0) is None).to_bytes(32, "little")
    r = encode(multiply(NONCE, BASE))
    key = encode(multiply(SECRET, BASE))

    def cancel(r_bytes: bytes) -> bytes:
        return r_bytes + _scalar(curve.challenge(r_bytes, key, message) * SECRET % L)

    return [
        _vector("a-canonical", f"A has y = p + {y}", large, message, r + _scalar(NONCE), KEY),
        _vector("a-canonical", "A has y = p, which is 0 read mod p", P.to_bytes(32, "little"),
                message, r + _scalar(NONCE), KEY),
        _vector("a-canonical", "A is the identity with y = p + 1; read mod p the equation holds",
                identity, message, r + _scalar(NONCE), KEY),
        _vector("a-canonical", "A has y = p, and the signature has 63 bytes: the key comes first",
                P.to_bytes(32, "little"), message, (r + _scalar(NONCE))[:63], KEY),
        _vector("r-canonical", "R is the identity with y = p + 1; read mod p the equation holds",
                key, message, cancel(identity), SIGNATURE),
        _vector("r-canonical", f"R has y = p + {y}", key, message, cancel(large), SIGNATURE),
        _vector("on-curve", "A is not on the curve", off, message, r + _scalar(NONCE), SIGNATURE),
        _vector("on-curve", "R is not on the curve", key, message, cancel(off), SIGNATURE),
    ]  # fmt: skip


def _cofactor() -> list[dict[str, object]]:
    pure, mixed = multiply(SECRET, BASE), curve.add(multiply(SECRET, BASE), TORSION[1])

    def sign(key_point: Point, r_point: Point, *, whole: bool) -> tuple[bytes, bytes, bytes]:
        key, r = encode(key_point), encode(r_point)
        for message in _messages():
            h = curve.challenge(r, key, message)
            if (h % 8 == 0) == whole:
                break
        return key, message, r + _scalar((NONCE + h * SECRET) % L)

    def by_order(*, reduced: bool) -> tuple[bytes, bytes, bytes]:
        """Sign so that the equation holds with the hash mod L alone, or without mod L alone."""
        key, r = encode(mixed), encode(plain_r)
        for message in _messages():
            h, hashed = (f(r, key, message) for f in (curve.challenge, curve.challenge_hash))
            if (h % 8 == 0, hashed % 8 == 0) == (reduced, not reduced):
                break
        return key, message, r + _scalar((NONCE + h * SECRET) % L)

    plain_r = multiply(NONCE, BASE)
    mixed_r = curve.add(plain_r, TORSION[1])
    return [
        _vector("valid", "A with torsion, where the equation holds without the cofactor",
                *sign(mixed, plain_r, whole=True), None),
        _vector("cofactorless", "A with torsion: holds only times 8",
                *sign(mixed, plain_r, whole=False), SIGNATURE),
        _vector("cofactorless", "R with torsion: holds only times 8",
                *sign(pure, mixed_r, whole=False), SIGNATURE),
        _vector("valid", "A with torsion, and the equation holds with the hash mod L alone",
                *by_order(reduced=True), None),
        _vector("hash-order", "A with torsion: holds only with the hash as it is, not mod L",
                *by_order(reduced=False), SIGNATURE),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "signature",
        "spec": "spec/02-entry §4",
        "comment": "Verify `signature` over `message` under `public_key`. `reason` null: it"
        " verifies; otherwise `name` is the one rule broken.",
        "vectors": [*_plain(), *_small_keys(), *_small_r(), *_noncanonical(), *_cofactor()],
    }
