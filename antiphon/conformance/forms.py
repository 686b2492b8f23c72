"""Forms of the kit's questions and of their answers (spec/conform-core.md).

Pure. `python -m spec.tables` writes the table of the appendix from them.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Form(NamedTuple):
    """The fields of one kind of question, and those of its answer that are compared."""

    given: str
    answer: str


FORMS: Mapping[str, Form] = {
    "scan": Form(
        "message (a name of log.proto), bytes", "reason: WIRE_MALFORMED for any message, or null"
    ),
    "parse": Form(
        "header", "reason; if null: id, fields, canonical (the fields alone yield these bytes)"
    ),
    "sign": Form("private_key, header", "signature"),
    "verify": Form("public_key, signature, message", "reason"),
    "digest": Form("heads, unsorted", "digest"),
    "salt": Form("author, retry_id", "salt"),
    "call-key": Form("author, text, words (a message of one text part)", "key, call"),
    "bundle": Form("bytes", "reason; if null: entries (ids in order), blobs (digests, sorted)"),
    "prove": Form(
        "private_key, client_nonce, pinned or null, seen_certificate, now_ms; of the challenge "
        "hub_key, hub_nonce, stated_certificate, expire_time_ms, hub_signature",
        "reason; if null: signature",
    ),
    "drafts": Form(
        "conversation, request, run, host, frames",
        "start_digest, received (per frame: true or false), digest",
    ),
    "sign-draft": Form("private_key, conversation, request, run, frame", "signature"),
    "admit": Form(
        "conversation, given (entries, admitted before), entry",
        "verdict; refused: reason; admitted: admitted (ids, ancestors first); "
        "pending: missing (sorted)",
    ),
    "fold": Form(
        "conversation, entries",
        "visible, covered, pending (ids, sorted); members (of keys with a role that are not "
        "revoked: key → role names, sorted); digest; membership_heads (ORD-15), heads_to_join "
        "(parents of the JOIN that a host writes first, none for up to 64 heads; ids, sorted)",
    ),
    "order": Form(
        "conversation, entries; seals, answers, sealable (ids asked for), tails (tips or null)",
        "seals (id → verdict counts, void or uncovered; of one that counts prev_seal, context, "
        "context_digest); reasons (void seal → word); tips, latest answer, else seal, last; "
        "answers (request → id or null); sealable (request → null, or prev_seal and entries of "
        "the seal that its host may write now, ORD-11); tails (tip, entries, frontier)",
    ),
    "compare": Form(
        "conversation, entries, heads (of the peer)",
        "heads, sorted; send (ids in send order); want, diverged (ids, sorted)",
    ),
    "project": Form(
        "entries (id, author, epoch, track, seq, prev, parents, lamport, update)",
        "reason; if null: void (id → word), projection, digest",
    ),
    "client": Form("author, epoch, track; or id", "client_id, as a decimal string"),
    "canonical": Form("value", "bytes"),
}
"""Per kind of question."""
