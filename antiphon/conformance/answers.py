"""Answers of this implementation to the questions of the kit (spec/conform-core.md).

Pure: a question is a JSON object, and so is its answer.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import (
    Conversation,
    Draft,
    DraftStream,
    call_digest,
    key_digest,
    sealable,
    sign_draft,
    start_digest,
    verify_draft,
)
from replica.document import NotCausal, Update, canonical_json, client_id, entry_client, plain
from replica.document import project as project_document
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ConversationId, Digest, EntryId, Lane, Position, PublicKey
from replica.link import Challenge, compare_heads, lacking, prove
from replica.log import (
    Admitted,
    Duplicate,
    Entry,
    Log,
    Pending,
    Text,
    codec,
    decode_bundle,
    digest_of,
    entry_id,
    retry_salt,
    sign,
    verify,
)
from replica.order import Order, SealNode, frontier, tail

Json = dict[str, Any]


def answer(question: Json) -> Json:
    """Return the answer to one question; `unknown` where there is none.

    Raises KeyError or ValueError for a question that lacks what it needs.
    """
    ask = _ANSWERS.get(question["ask"])
    return {"unknown": True} if ask is None else ask(question)


def _reason(check: Callable[[], object]) -> str | None:
    try:
        check()
    except AntiphonError as error:
        return error.reason
    return None


def _hexes(ids: Any) -> list[str]:
    return [i.hex() for i in ids]


def _id(text: str) -> EntryId:
    return EntryId(bytes.fromhex(text))


# --- bytes ---------------------------------------------------------------------------------


def _scan(question: Json) -> Json:
    data = bytes.fromhex(question["bytes"])
    return {"reason": _reason(lambda: codec.check_wire(question["message"], data))}


def _parse(question: Json) -> Json:
    data = bytes.fromhex(question["header"])
    try:
        header = codec.decode_header(data)
    except AntiphonError as error:
        return {"reason": error.reason}
    fields = {
        "conversation": (header.conversation or b"").hex(),
        "author": header.author.hex(),
        "epoch": str(header.epoch),
        "track": header.track,
        "seq": header.seq,
        "prev": (header.prev or b"").hex(),
        "parents": _hexes(header.parents),
        "basis": (header.basis or b"").hex(),
        "lamport": header.lamport,
        "kind": header.kind,
        "critical": header.critical,
        "body_digest": header.body_digest.hex(),
        "body_bytes": header.body_bytes,
        "create_time_ms": header.create_time_ms,
        "conflict": header.conflict,
    }
    canonical = codec.encode_header(header) == data
    return {"reason": None, "id": entry_id(data).hex(), "fields": fields, "canonical": canonical}


def _sign(question: Json) -> Json:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(question["private_key"]))
    return {"signature": sign(bytes.fromhex(question["header"]), key).hex()}


def _verify(question: Json) -> Json:
    names = ("public_key", "signature", "message")
    key, signature, message = (bytes.fromhex(question[name]) for name in names)
    return {"reason": _reason(lambda: verify(PublicKey(key), signature, message))}


def _digest(question: Json) -> Json:
    return {"digest": digest_of(sorted(map(_head, question["heads"]))).hex()}


def _head(raw: Json) -> Position:
    lane = Lane(PublicKey(bytes.fromhex(raw["author"])), int(raw["epoch"]), raw["track"])
    return Position(lane, raw["seq"], _id(raw["id"]))


def _salt(question: Json) -> Json:
    author, retry_id = (bytes.fromhex(question[name]) for name in ("author", "retry_id"))
    return {"salt": retry_salt(PublicKey(author), retry_id).hex()}


def _call_key(question: Json) -> Json:
    author = PublicKey(bytes.fromhex(question["author"]))
    call = call_digest((Text(question["words"]),))
    return {"key": key_digest(author, question["text"]).hex(), "call": call.hex()}


def _bundle(question: Json) -> Json:
    try:
        bundle = decode_bundle(BytesIO(bytes.fromhex(question["bytes"])))
    except AntiphonError as error:
        return {"reason": error.reason}
    entries, blobs = _hexes(e.id for e in bundle.entries), sorted(_hexes(bundle.blobs))
    return {"reason": None, "entries": entries, "blobs": blobs}


# --- proofs and drafts ---------------------------------------------------------------------


def _prove(question: Json) -> Json:
    def given(name: str) -> bytes:
        return bytes.fromhex(question[name])

    challenge = Challenge(
        PublicKey(given("hub_key")),
        given("hub_nonce"),
        given("stated_certificate"),
        int(question["expire_time_ms"]),
        given("hub_signature"),
    )
    pinned = question["pinned"] and PublicKey(given("pinned"))
    try:
        signature = prove(
            Ed25519PrivateKey.from_private_bytes(given("private_key")),
            given("client_nonce"),
            challenge,
            expected_server=pinned,
            certificate_digest=given("seen_certificate"),
            now_ms=int(question["now_ms"]),
        )
    except AntiphonError as error:
        return {"reason": error.reason}
    return {"reason": None, "signature": signature.hex()}


def draft_of(question: Json, raw: Json) -> Draft:
    """Return one of the frames that a question of drafts.json states."""
    return Draft(
        ConversationId(bytes.fromhex(question["conversation"])),
        _id(question["request"]),
        int(question["run"]),
        raw["token_offset"],
        tuple(raw["token_ids"]),
        raw["byte_offset"],
        bytes.fromhex(raw["data"]),
        Digest(bytes.fromhex(raw["digest"])),
        bytes.fromhex(raw["signature"]),
    )


def _drafts(question: Json) -> Json:
    frames = [draft_of(question, raw) for raw in question["frames"]]
    request, run = _id(question["request"]), int(question["run"])
    stream = DraftStream(ConversationId(bytes.fromhex(question["conversation"])), request, run)
    host = PublicKey(bytes.fromhex(question["host"]))
    received = [
        _reason(lambda f=frame: verify_draft(f, host)) is None and stream.receive(frame)  # type: ignore[misc]
        for frame in frames
    ]
    start = start_digest(request, run).hex()
    return {"start_digest": start, "received": received, "digest": stream.digest.hex()}


def _sign_draft(question: Json) -> Json:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(question["private_key"]))
    return {"signature": sign_draft(draft_of(question, question["frame"]), key).signature.hex()}


# --- logs ----------------------------------------------------------------------------------


def _entry(raw: Json) -> Entry:
    body = None if raw["body"] is None else bytes.fromhex(raw["body"])
    return codec.decode_entry(bytes.fromhex(raw["header"]), bytes.fromhex(raw["signature"]), body)


def _admit(question: Json) -> Json:
    log = Log(ConversationId(bytes.fromhex(question["conversation"])))
    for raw in question["given"]:
        log.admit(_entry(raw))
    try:
        verdict = log.admit(_entry(question["entry"]))
    except EntryRefused as error:
        return {"verdict": "refused", "reason": error.reason}
    match verdict:
        case Admitted(entries):
            return {"verdict": "admitted", "admitted": _hexes(e.id for e in entries)}
        case Pending(missing):
            return {"verdict": "pending", "missing": sorted(_hexes(missing))}
        case Duplicate():
            return {"verdict": "duplicate"}


def _held(question: Json) -> Conversation:
    held = Conversation(ConversationId(bytes.fromhex(question["conversation"])))
    for raw in question["entries"]:
        # One that is refused has no effect; `admit` is the question about verdicts.
        _reason(lambda r=raw: held.admit(_entry(r)))  # type: ignore[misc]
    return held


def _fold(question: Json) -> Json:
    log = _held(question).log
    now, entries = log.membership, log.entries
    members = {
        key.hex(): sorted(role.name for role in roles)
        for key, roles in now.roles.items()
        if now.is_member(key)
    }
    return {
        "visible": sorted(i.hex() for i, entry in entries.items() if now.is_visible(entry)),
        "members": members,
        "covered": sorted(_hexes(log.covered())),
        "digest": log.digest.hex(),
        "membership_heads": _hexes(log.membership_heads()),
        "heads_to_join": _hexes(log.roster.heads_to_join()),
        "pending": sorted(_hexes(log.pending)),
    }


def _order(question: Json) -> Json:
    held = _held(question)
    order = held.order
    answers = {asked: order.generation_of(_id(asked)) for asked in question["answers"]}
    return {
        "seals": {seal: _seal(order, _id(seal)) for seal in question["seals"]},
        "reasons": {i.hex(): reason.name for i, reason in order.void.items()},
        "tips": _hexes(node.id for node in order.tips()),
        "answers": {asked: found.hex() if found else None for asked, found in answers.items()},
        "sealable": {asked: _sealable(held, _id(asked)) for asked in question["sealable"]},
        "tails": [_tail(order, tip) for tip in question["tails"]],
    }


def _seal(order: Order, seal: EntryId) -> Json:
    node = order.nodes.get(seal)
    if node is None:
        return {"verdict": "void" if seal in order.void else "uncovered"}
    return {
        "verdict": "counts",
        "prev_seal": _of_node(node.parent),
        "context": _hexes(e.id for e in order.context(seal)),
        "context_digest": node.seal.context_digest.hex(),
    }


def _of_node(node: SealNode | None) -> str | None:
    return node.id.hex() if node is not None else None


def _sealable(held: Conversation, asked: EntryId) -> Json | None:
    found = sealable(held, asked)
    if found is None:
        return None
    return {"prev_seal": _of_node(found.parent), "entries": _hexes(found.entries)}


def _tail(order: Order, tip: str | None) -> Json:
    node = order.nodes[_id(tip)] if tip else None
    entries = _hexes(e.id for e in tail(order, node))
    return {"tip": tip, "entries": entries, "frontier": _hexes(frontier(order, node))}


def _compare(question: Json) -> Json:
    log = _held(question).log
    found = compare_heads(log, map(_head, question["heads"]))
    return {
        "heads": [_head_json(head) for head in log.heads()],
        "send": _hexes(entry.id for entry in lacking(log, found.held)),
        "want": sorted(_hexes(found.wanted)),
        "diverged": sorted(head.id.hex() for head in found.diverged),
    }


def _head_json(head: Position) -> Json:
    lane = {"author": head.lane.author.hex(), "epoch": str(head.lane.epoch)}
    return {**lane, "track": int(head.lane.track), "seq": head.seq, "id": head.id.hex()}


# --- the document --------------------------------------------------------------------------


def _project(question: Json) -> Json:
    try:
        found = project_document(map(_update, question["entries"]))
    except NotCausal as refused:
        return {"reason": refused.reason}
    projection = {"annotations": found.annotations, "branches": found.branches, "meta": found.meta}
    return {
        "reason": None,
        "void": {i.hex(): reason for i, reason in found.void.items()},
        "projection": projection,
        "digest": found.digest.hex(),
    }


def _update(raw: Json) -> Update:
    return Update(
        _id(raw["id"]),
        Lane(PublicKey(bytes.fromhex(raw["author"])), int(raw["epoch"]), raw["track"]),
        raw["seq"],
        _id(raw["prev"]) if raw["prev"] else None,
        tuple(map(_id, raw["parents"])),
        raw["lamport"],
        bytes.fromhex(raw["update"]),
    )


def _client(question: Json) -> Json:
    if "id" in question:
        return {"client_id": str(entry_client(_id(question["id"])))}
    author, epoch = PublicKey(bytes.fromhex(question["author"])), int(question["epoch"])
    return {"client_id": str(client_id(Lane(author, epoch, question["track"])))}


def _canonical(question: Json) -> Json:
    return {"bytes": canonical_json(plain(question["value"])).hex()}


_ANSWERS: dict[str, Callable[[Json], Json]] = {
    "scan": _scan,
    "parse": _parse,
    "sign": _sign,
    "verify": _verify,
    "digest": _digest,
    "salt": _salt,
    "call-key": _call_key,
    "bundle": _bundle,
    "prove": _prove,
    "drafts": _drafts,
    "sign-draft": _sign_draft,
    "admit": _admit,
    "fold": _fold,
    "order": _order,
    "compare": _compare,
    "project": _project,
    "client": _client,
    "canonical": _canonical,
}
