"""invitation.json: codes, the names of their mailboxes, and proofs."""

import base64
import hmac

from spec.vectors.make.build import Key, pae, sha256

ROLES = {"reader": 1, "writer": 2, "owner": 3, "host": 4}


def _vector(name: str, role: str, address: str, expire_ms: int) -> dict[str, object]:
    hub, ada, bob = Key("hub").public, Key("ada").public, Key("bob").public
    conversation, secret = sha256(b"a conversation"), sha256(name.encode())[:16]
    stated = bytes([ROLES[role]]) + expire_ms.to_bytes(8, "little")
    content = hub + conversation + ada + stated + secret + address.encode()
    content += sha256(pae("antiphon/v1/invitation", content))[:4]
    proof = pae("antiphon/v1/invitation/proof", hub + conversation + ada + bob + stated)
    return {
        "name": name,
        "hub_address": address,
        "hub_key": hub.hex(),
        "conversation": conversation.hex(),
        "inviter": ada.hex(),
        "newcomer": bob.hex(),
        "role": role,
        "expire_time_ms": str(expire_ms),
        "secret": secret.hex(),
        "code": "antiphon1." + base64.urlsafe_b64encode(content).decode().rstrip("="),
        "mailbox": sha256(pae("antiphon/v1/invitation/mailbox", secret)).hex(),
        "proof": hmac.digest(secret, proof, "sha256").hex(),
    }


PLAIN = "192.0.2.1:7412"
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _coded(address: str, role: str = "writer") -> str:
    return str(_vector(address, role, address, 1_800_000_000_000)["code"])


def _of_bytes(content: bytes) -> str:
    """Return the code of any content, with the right checksum."""
    content += sha256(pae("antiphon/v1/invitation", content))[:4]
    return "antiphon1." + base64.urlsafe_b64encode(content).decode().rstrip("=")


def _content(code: str) -> bytes:
    """Return the content of a code, without its checksum."""
    data = code.removeprefix("antiphon1.")
    return base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))[:-4]


def _content_refused() -> dict[str, str]:
    """Return codes in a right text of a wrong content."""
    code = _coded(PLAIN)
    content = _content(code)
    turned = base64.urlsafe_b64encode(content + bytes(4)).decode().rstrip("=")
    return {
        "prefix-none": code.removeprefix("antiphon1."),
        "prefix-upper": "A" + code[1:],
        "checksum": "antiphon1." + turned,
        "owner": _coded(PLAIN, "owner"),
        "role-9": _of_bytes(content[:96] + b"\x09" + content[97:]),
        "content-short": _of_bytes(content[:120]),
        "address-none": _of_bytes(content[:121]),
        "address-long": _coded("h" * 252 + ":7412"),
        "address-bytes": _of_bytes(content[:121] + b"\xff:7412"),
        "port-0": _coded("hub.example.com:0"),
        "port-digits": _coded("hub.example.com:\u0667\u0664"),
        "port-sign": _coded("hub.example.com:+74"),
        "port-long": _coded("hub.example.com:007412"),
        "host-space": _coded("hub example.com:7412"),
        "host-user": _coded("ada@example.com:7412"),
        "ipv6-bare": _coded("2001:db8::1:7412"),
        "ipv6-name": _coded("[hub.example.com]:7412"),
    }


def _first_with(letters: str, length: int) -> str:
    """Return a code whose length modulo 4 is `length`, and that has one of these letters."""
    codes = (_coded(f"hub{n}.example:7412") for n in range(10**6))
    return next(c for c in codes if len(c[10:]) % 4 == length and set(letters) & set(c[10:]))


def _spaced(code: str) -> str:
    """Return a code with each character that Unicode calls white space before one of its own."""
    quads = "".join(map(chr, range(0x2000, 0x200B)))
    spaces = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + quads
    return "".join(map("".join, zip(spaces, code, strict=False))) + code[len(spaces) :] + "\n"


def _refused() -> dict[str, str]:
    """Return codes of right bytes in a wrong text, and such of a wrong address."""
    plain, dashed = _first_with("-_", 2), _first_with("-_", 0)
    spare = plain[:-1] + ALPHABET[ALPHABET.index(plain[-1]) + 1]
    return {
        "padded": plain + "==",
        "padded-whole": dashed + "====",
        "spare-bits": spare,
        "other-alphabet": dashed[:10] + dashed[10:].replace("-", "+").replace("_", "/"),
        "no-white-space": plain[:40] + "\x1c" + plain[40:],
        "no-port": _coded("hub.example.com"),
        "port-beyond": _coded("hub.example.com:65536"),
        "no-host": _coded(":7412"),
    }


def build() -> dict[str, object]:
    """Return the file."""
    refused = _refused() | _content_refused()
    return {
        "file": "invitation",
        "spec": "spec/09-trust §5",
        "comment": "`code` is the text form of the fields above it. The newcomer leaves `proof` in"
        " `mailbox`. A vector without these has a code as it came, and the code that it `is` or the"
        " `reason` why it is none.",
        "rules": [
            "An address is a host, a colon and a port: one to five ASCII digits, a number from 1 to"
            " 65,535. The host is an IPv6 address in brackets, or one character or more, none of"
            " them `/`, `@`, `:`, `[`, `]`, or of Unicode's categories Z and C.",
            "The role is READER, WRITER or HOST. White space is what has the property White_Space.",
        ],
        "vectors": [
            _vector("writer", "writer", PLAIN, 1_800_000_000_000),
            _vector("reader", "reader", "hub.example.com:443", 1_800_000_000_000),
            _vector("longest-address", "writer", "h" * 251 + ":7412", 2**53),
            _vector("host", "host", "[2001:db8::1]:07412", 1_800_000_000_000),
            {"name": "spaced", "code": _spaced(_coded(PLAIN)), "is": _coded(PLAIN)},
            *({"name": n, "code": c, "reason": "INVITE_INVALID"} for n, c in refused.items()),
        ],
    }
