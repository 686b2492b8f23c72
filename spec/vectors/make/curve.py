"""Edwards25519 in affine coordinates: slow and short, only for odd signatures."""

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

Point = tuple[int, int]

IDENTITY: Point = (0, 1)


def add(a: Point, b: Point) -> Point:
    """Add two points; the law is complete."""
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2 % P
    x3 = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P
    y3 = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P
    return x3, y3


def multiply(scalar: int, point: Point) -> Point:
    """Multiply by double and add."""
    result = IDENTITY
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point = add(point, point)
        scalar >>= 1
    return result


def negate(point: Point) -> Point:
    """Return the inverse."""
    return -point[0] % P, point[1]


def encode(point: Point) -> bytes:
    """Encode canonically: y, with the lowest bit of x on top."""
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def x_of(y: int, sign: int) -> int | None:
    """Return the x that belongs to y, None off the curve."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    if root * root % P != square:
        return None
    return root if root & 1 == sign else -root % P


def _base() -> Point:
    y = 4 * pow(5, -1, P) % P
    x = x_of(y, 0)
    assert x is not None
    return x, y


BASE = _base()


def torsion() -> list[Point]:
    """Return the eight points of small order, as multiples of one of order 8."""
    for y in range(2, 100):
        x = x_of(y, 0)
        if x is None:
            continue
        point = multiply(L, (x, y))
        if multiply(4, point) != IDENTITY:
            return [multiply(i, point) for i in range(8)]
    raise AssertionError("no point of order 8 found")


def challenge_hash(r: bytes, key: bytes, message: bytes) -> int:
    """Return the hash that binds R, A and the message, as a number of 512 bits."""
    return int.from_bytes(hashlib.sha512(r + key + message).digest(), "little")


def challenge(r: bytes, key: bytes, message: bytes) -> int:
    """Return this hash mod L, by which A is multiplied."""
    return challenge_hash(r, key, message) % L
