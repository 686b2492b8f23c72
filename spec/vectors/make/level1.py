"""level1.json: a conversation of two turns as a client without a log sends and receives it."""

import hmac
import struct
from typing import Any

from spec.vectors.make.build import (
    GENERATION,
    GENESIS,
    HOST,
    MEMBER,
    MESSAGE,
    REQUEST,
    SEAL,
    Built,
    Fixed,
    Header,
    Key,
    NamedLog,
    Value,
    genesis,
    grant,
    message,
    one_field,
    pae,
    request,
    said,
    sha256,
    signed,
    varint,
)
from spec.vectors.make.headers import entry_vector

ADA, HAL, HUB = Key("ada"), Key("hal"), Key("hub")
EPOCH, HOST_EPOCH, RUN = 0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x1122334455667788
EXPIRE_MS = 1_700_000_900_000
NONCE, SECRET = sha256(b"client nonce"), sha256(b"hub secret")
PROFILE = sha256(b"profile")
FRAMES = (([258, 4], b"Par"), ([9, 70_000], b"is."))
RETRY_ID = b"job 17, first try"

Vector = dict[str, Any]


# --- the proof: 04 section 3 ----------------------------------------------------------


def _transcript(role: int, hub_nonce: bytes) -> bytes:
    fields = (HUB.public, ADA.public, NONCE, hub_nonce, bytes(32), struct.pack("<Q", EXPIRE_MS))
    return pae("antiphon/v1/authenticate", b"".join(fields) + bytes([role]))


def _mac(tag: str, content: bytes) -> bytes:
    return hmac.digest(SECRET, pae(tag, content), "sha256")


def _proof() -> Vector:
    bound = ADA.public + NONCE + struct.pack("<Q", EXPIRE_MS)
    hub_nonce = _mac("antiphon/v1/authenticate", bound)
    pre_images = [_transcript(role, hub_nonce) for role in (1, 2)]
    hub_signature = HUB.private.sign(pre_images[0])
    client_signature = ADA.private.sign(pre_images[1])
    challenge = message({1: HUB.public, 2: hub_nonce, 4: EXPIRE_MS, 5: hub_signature})
    owned = ADA.public + struct.pack("<Q", EXPIRE_MS)
    ticket = owned + _mac("antiphon/v1/ticket", owned)
    first: dict[int, Value] = {1: ADA.public, 2: NONCE}
    return {
        "name": "authenticate",
        "comment": "both steps; nonce and ticket are what a hub with this secret makes of them",
        "of": "proof",
        "private_key": ADA.seed.hex(),
        "hub_private_key": HUB.seed.hex(),
        "hub_secret": SECRET.hex(),
        "client_nonce": NONCE.hex(),
        "hub_nonce": hub_nonce.hex(),
        "expire_time_ms": str(EXPIRE_MS),
        "hub_pre_image": pre_images[0].hex(),
        "hub_signature": hub_signature.hex(),
        "client_pre_image": pre_images[1].hex(),
        "client_signature": client_signature.hex(),
        "requests": [
            message(first).hex(),
            message({**first, 3: challenge, 4: client_signature}).hex(),
        ],
        "responses": [message({1: challenge}).hex(), message({2: ticket}).hex()],
        "ticket": ticket.hex(),
    }


# --- the log --------------------------------------------------------------------------


class Turns(NamedLog):
    """Two turns: one lane of the client on each track, and one of the host."""

    def __post_init__(self) -> None:
        """Write the first Push, and the host's answer."""
        body = self._salted("genesis", genesis((ADA,)))
        header = Header(ADA.public, GENESIS, body, epoch=EPOCH)
        self.keep("genesis", signed(header, ADA))
        self._write("grant", MEMBER, grant(HAL, HOST), ["genesis"])
        self._write("message", MESSAGE, said("Capital of France?"), ["genesis"])
        self._write("request", REQUEST, request(HAL), ["message"])
        self._seal()
        self._generation()
        self._write("message-2", MESSAGE, said("And of Spain?"), ["generation"], basis="seal")
        self._write("request-2", REQUEST, request(HAL), ["message-2"], basis="seal")

    def _write(self, name: str, kind: int, content: bytes, parents: list[str], **more: str) -> None:
        self.write(name, ADA, kind, content, parents=parents, epoch=EPOCH, **more)

    def _seal(self) -> None:
        listed = ["message", "request"]
        content = message(
            {
                1: self.entries["request"].id,
                3: [self.entries[name].id for name in listed],
                4: PROFILE,
                5: self.context_digest(listed),
                6: sha256(b"render"),
                7: varint(6) + varint(4),
                8: [self.entries["grant"].id],
            }
        )
        self.write(
            "seal", HAL, SEAL, content, parents=["request"], listed=[*listed, "grant"],
            epoch=HOST_EPOCH,
        )  # fmt: skip

    def _generation(self) -> None:
        ids = [token for frame, _ in FRAMES for token in frame]
        text = b"".join(data for _, data in FRAMES)
        content = message(
            {
                1: b"".join(map(varint, ids)),
                2: [one_field(1, message({1: text}))],
                3: len(text),
                4: 1,
                9: self.draft_digest(len(FRAMES)),
                11: Fixed(RUN),
            }
        )
        self.write(
            "generation", HAL, GENERATION, content, parents=["seal"], basis="seal",
            epoch=HOST_EPOCH,
        )  # fmt: skip

    def draft_digest(self, frames: int) -> bytes:
        """Return the running digest behind so many frames."""
        asked = self.entries["request"].id + struct.pack("<Q", RUN)
        digest = sha256(pae("antiphon/v1/draft-stream", asked))
        for ids, _ in FRAMES[:frames]:
            for token in ids:
                digest = sha256(digest + struct.pack("<I", token))
        return digest


LOG = Turns((ADA,))
COMMENTS = {
    "genesis": "ada is the only owner; no conversation, track, seq, prev, parents and lamport",
    "grant": "the key of the host gets the role HOST; first entry of the lane on track 3",
    "message": "first entry of the lane on track 1",
    "request": "the second: prev and parent are the message",
    "seal": "the host lists the context: message and request",
    "generation": "the answer; its draft digest is that of the last draft",
    "message-2": "written from the Hint: it follows the answer, on the seal",
    "request-2": "queues, as conflict is left out",
}


def _entry(name: str) -> Vector:
    header = LOG.entries[name].header
    by = HAL if header.author == HAL.public else ADA
    return {"of": "entry", **entry_vector(name, COMMENTS[name], header, key=by)}


# --- calls ----------------------------------------------------------------------------


def _entry_message(built: Built) -> bytes:
    return message({1: built.header_bytes, 2: built.signature, 3: built.body or b""})


def _entries(*names: str) -> list[bytes]:
    return [_entry_message(LOG.entries[name]) for name in names]


def _call(name: str, comment: str, method: str, asked: bytes, answer: bytes) -> Vector:
    return {
        "name": name,
        "comment": comment,
        "of": "call",
        "method": method,
        "request": asked.hex(),
        "response": answer.hex(),
    }


def _push(name: str, comment: str, *names: str) -> Vector:
    outcomes: list[bytes] = [message({1: LOG.entries[one].id, 2: 1}) for one in names]
    return _call(name, comment, "Push", message({2: _entries(*names)}), message({1: outcomes}))


def _hosts() -> Vector:
    profile = message({1: PROFILE, 2: b"Scripted", 3: 8192})
    info = message({1: HAL.public, 3: [profile]})
    answer = message({1: [message({1: info, 2: 1})]})
    return _call("hosts", "hal is linked, and the hub vouches for it", "Hosts", b"", answer)


# --- the Watch ------------------------------------------------------------------------


def _hint(parent: str, tip: str | None, own: list[str], open_request: str | None) -> bytes:
    basis = LOG.entries[tip].id if tip else b""
    named = [LOG.entries[name].header.lamport for name in (parent, tip) if name]
    fields: dict[int, Value] = {
        1: basis,
        2: [LOG.entries[parent].id],
        3: basis,
        4: 1 + max(named),
        5: [_own_head(name) for name in own],
        6: [LOG.entries["grant"].id],
        7: LOG.entries[open_request].id if open_request else b"",
    }
    return one_field(3, message(fields))


def _own_head(name: str) -> bytes:
    head = LOG.entries[name].header
    return message(
        {
            1: head.author,
            2: Fixed(head.epoch),
            3: head.track,
            4: head.seq,
            5: LOG.entries[name].id,
            6: head.lamport,
        }
    )


def _draft(index: int) -> bytes:
    ids, data = FRAMES[index]
    at = sum(len(frame) for frame, _ in FRAMES[:index])
    offset = sum(len(shown) for _, shown in FRAMES[:index])
    asked, digest = LOG.entries["request"].id, LOG.draft_digest(index + 1)
    numbers = struct.pack("<QIII", RUN, at, len(ids), offset)
    pre_image = pae("antiphon/v1/draft", LOG.conversation + asked + numbers + sha256(data) + digest)
    fields: dict[int, Value] = {
        1: LOG.conversation,
        2: asked,
        3: Fixed(RUN),
        4: at,
        5: b"".join(map(varint, ids)),
        6: offset,
        7: data,
        8: digest,
        9: HAL.private.sign(pre_image),
    }
    return one_field(2, message(fields))


def _watch() -> Vector:
    own = ["genesis", "request", "grant"]
    answered = message(
        {1: LOG.entries["request"].id, 2: LOG.entries["seal"].id, 3: LOG.entries["generation"].id}
    )

    def entries(*names: str) -> bytes:
        return one_field(1, message({2: _entries(*names)}))

    responses = {
        "the backlog, in send order": entries("genesis", "grant", "message", "request"),
        "the request still gets an answer": _hint("request", None, own, "request"),
        "the seal": entries("seal"),
        "the answer is being written": _hint("request", "seal", own, "request"),
        "two tokens, three bytes": _draft(0),
        "two more of each": _draft(1),
        "the answer": entries("generation"),
        "which request it answers": one_field(4, answered),
        "the place of the next turn": _hint("generation", "seal", own, None),
        "the second turn": entries("message-2", "request-2"),
        "and what follows it": _hint("request-2", "seal", ["genesis", "request-2", "grant"],
                                     "request-2"),
        "20 s later": one_field(5, b""),
    }  # fmt: skip
    return {
        "name": "watch",
        "comment": "from an empty cursor, with drafts, begun after the first Push",
        "of": "watch",
        "request": message({1: LOG.conversation, 3: 1}).hex(),
        "responses": [{"comment": name, "bytes": data.hex()} for name, data in responses.items()],
    }


# --- retries and errors -----------------------------------------------------------------


def _retry() -> Vector:
    given = ADA.public + RETRY_ID
    drawn = sha256(pae("antiphon/v1/epoch", given))[:8]
    return {
        "name": "retry",
        "comment": "what a client derives that keeps no bytes (02 section 7)",
        "of": "retry",
        "author": ADA.public.hex(),
        "retry_id": RETRY_ID.hex(),
        "salt": sha256(pae("antiphon/v1/salt", given))[:16].hex(),
        "epoch": str(int.from_bytes(drawn, "little") or 1),
    }


def _any(kind: str, content: bytes) -> bytes:
    return message({1: f"type.googleapis.com/google.rpc.{kind}".encode(), 2: content})


def _trailer(reason: str, code: int, comment: str, wait: tuple[int, int] | None) -> Vector:
    detail, next_step = "What happened.", "What to do."
    pair = message({1: b"next_step", 2: next_step.encode()})
    info = message({1: reason.encode(), 2: b"antiphon.v1", 3: [pair]})
    details = [_any("ErrorInfo", info)]
    if wait is not None:
        details.append(_any("RetryInfo", one_field(1, message({1: wait[0], 2: wait[1]}))))
    return {
        "name": reason.lower().replace("_", "-"),
        "comment": comment,
        "of": "trailer",
        "reason": reason,
        "code": code,
        "detail": detail,
        "next_step": next_step,
        "retry_after_ms": None if wait is None else wait[0] * 1000 + wait[1] // 1_000_000,
        "bytes": message({1: code, 2: detail.encode(), 3: details}).hex(),
    }


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "level1",
        "spec": "spec/13-level-1",
        "comment": "One conversation of two turns, byte by byte, in the order in which a client"
        " without a log sends and receives it; `of` names the kind of each step. `request`,"
        " `response` and `bytes` are messages of sync.proto with ascending fields and without"
        " defaults; entries are in the form of entry.json. At the end: the salt and epoch of a"
        " retry id, and trailers `grpc-status-details-bin` with their texts.",
        "vectors": [
            _proof(),
            _hosts(),
            *map(_entry, ("genesis", "grant", "message", "request")),
            _push("push", "the first turn, as one call", "genesis", "grant", "message", "request"),
            _watch(),
            *map(_entry, ("seal", "generation", "message-2", "request-2")),
            _push("push-2", "the second turn", "message-2", "request-2"),
            _retry(),
            _trailer("TICKET_INVALID", 16, "the same call may succeed, at once", (0, 0)),
            _trailer("RATE_LIMITED", 8, "in 1.5 s", (1, 500_000_000)),
            _trailer("CONVERSATION_NOT_FOUND", 5, "never", None),
        ],
    }
