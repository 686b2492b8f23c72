"""invitation.json: codes, the names of their mailboxes, and proofs."""

import base64
import hmac

from spec.vectors.make.build import Key, pae, sha256

ROLES = {"reader": 1, "writer": 2}


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


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "invitation",
        "spec": "spec/09-trust §5",
        "comment": "`code` is the text form of the fields above it. The newcomer leaves `proof` in"
        " `mailbox`.",
        "vectors": [
            _vector("writer", "writer", "192.0.2.1:7412", 1_800_000_000_000),
            _vector("reader", "reader", "hub.example.com:443", 1_800_000_000_000),
            _vector("longest-address", "writer", "h" * 251 + ":7412", 2**53),
        ],
    }
