"""Codes, proofs, and the inviter's answers (spec/09-trust §5)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replica.conversation.invitation import (
    CODE_PREFIX,
    Invitation,
    InviteExpired,
    InviteInvalid,
    InviteUsed,
    Issued,
    JoinPending,
    JoinVerdict,
    check_role,
    check_verdict,
    decode_invitation,
    encode_invitation,
    has_unknown_grant,
    is_answer,
    judge,
    read_code,
)
from replica.ids import ConversationId, PublicKey
from replica.log import Entry, Grant, Log, Member, Membership, Role
from replica.refusals import ArgumentInvalid
from tests.support.writers import Writer

FILE = Path(__file__).parents[3] / "spec" / "vectors" / "invitation.json"
ALL_VECTORS = json.loads(FILE.read_text())["vectors"]
VECTORS = [vector for vector in ALL_VECTORS if "proof" in vector]
REFUSED = [vector for vector in ALL_VECTORS if "reason" in vector]
ADA, BOB, EVE = (PublicKey(bytes([n]) * 32) for n in (1, 2, 3))
INVITATION = Invitation(
    "192.0.2.1:7412", PublicKey(b"h" * 32), ConversationId(b"c" * 32), ADA, Role.WRITER,
    1_000_000, b"s" * 16,
)  # fmt: skip
ISSUED = Issued(INVITATION, "bob", 1)
CHANGES = {
    "hub_key": PublicKey(b"i" * 32),
    "conversation": ConversationId(b"d" * 32),
    "inviter": EVE,
    "role": Role.READER,
    "expire_time_ms": 1_000_001,
    "secret": b"t" * 16,
}


def test_a_code_is_read_as_it_was_written() -> None:
    code = encode_invitation(INVITATION)
    assert decode_invitation(code) == INVITATION
    assert decode_invitation(f"  {code[:30]}\n   {code[30:]}\n") == INVITATION


def test_no_changed_code_is_read() -> None:
    code = encode_invitation(INVITATION)
    for at in range(len(CODE_PREFIX), len(code)):
        for other in "A", "_":
            changed = code[:at] + other + code[at + 1 :]
            if changed != code:
                with pytest.raises(InviteInvalid):
                    decode_invitation(changed)
        with pytest.raises(InviteInvalid):
            decode_invitation(code[:at])


@pytest.mark.parametrize(
    "text", ["", "x", CODE_PREFIX, CODE_PREFIX + "é", CODE_PREFIX + "A" * 5_000]
)
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(InviteInvalid):
        decode_invitation(text)


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_codes_of_right_bytes_in_another_text_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(InviteInvalid) as refused:
        decode_invitation(vector["code"])
    assert refused.value.reason == vector["reason"]


def test_white_space_of_unicode_in_a_code_is_ignored() -> None:
    (spaced,) = [vector for vector in ALL_VECTORS if "is" in vector]
    assert encode_invitation(decode_invitation(spaced["code"])) == spaced["is"]


def test_no_code_gives_the_role_of_an_owner() -> None:
    with pytest.raises(ArgumentInvalid):
        check_role(Role.OWNER)
    with pytest.raises(InviteInvalid):
        decode_invitation(encode_invitation(replace(INVITATION, role=Role.OWNER)))


def test_a_code_is_for_a_host_or_for_a_person() -> None:
    of_person, of_host = INVITATION, replace(INVITATION, role=Role.HOST)
    assert read_code(encode_invitation(of_person)) == of_person
    assert read_code(encode_invitation(of_host), of_host=True) == of_host
    with pytest.raises(ArgumentInvalid):
        read_code(encode_invitation(of_host))
    with pytest.raises(ArgumentInvalid):
        read_code(encode_invitation(of_person), of_host=True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_proof_binds_every_field_and_the_key(name: str) -> None:
    other = replace(INVITATION, **{name: CHANGES[name]})
    assert INVITATION.is_proof(BOB, INVITATION.proof(BOB))
    assert not INVITATION.is_proof(BOB, other.proof(BOB))
    assert not INVITATION.is_proof(EVE, INVITATION.proof(BOB))


def test_another_address_of_the_hub_changes_neither_proof_nor_mailbox() -> None:
    other = replace(INVITATION, hub_address="127.0.0.1:1")
    assert (other.proof(BOB), other.mailbox) == (INVITATION.proof(BOB), INVITATION.mailbox)


def verdict(issued: Issued, now_ms: int = 2, membership: Membership | None = None) -> object:
    proof = issued.invitation.proof(BOB)
    return judge(issued, BOB, proof, membership or Membership(), now_ms)


def test_a_proof_is_granted_once_and_to_one_key() -> None:
    assert verdict(ISSUED) is JoinVerdict.GRANTED
    assert verdict(replace(ISSUED, claimed_by=BOB)) is JoinVerdict.GRANTED
    assert verdict(replace(ISSUED, claimed_by=EVE)) is JoinVerdict.USED


def test_a_proof_without_the_secret_gets_no_answer() -> None:
    for proof in (b"", bytes(32), INVITATION.proof(EVE)):
        assert judge(ISSUED, BOB, proof, Membership(), 2) is None


def test_what_is_revoked_expired_or_removed_is_not_granted() -> None:
    assert verdict(replace(ISSUED, is_revoked=True)) is JoinVerdict.REVOKED
    assert verdict(ISSUED, now_ms=1_000_000) is JoinVerdict.EXPIRED
    removed = Membership(kept={BOB: frozenset()})
    assert verdict(ISSUED, membership=removed) is JoinVerdict.REMOVED


def test_a_crash_after_the_claim_is_answered_as_before() -> None:
    claimed = replace(ISSUED, claimed_by=BOB)
    assert verdict(claimed, now_ms=2_000_000) is JoinVerdict.GRANTED


def test_an_unknown_answer_is_none_yet() -> None:
    answers = [is_answer(number) for number in (*JoinVerdict, 99)]
    assert answers == [False, True, True, True, True, True, False]


def test_each_answer_has_its_error() -> None:
    check_verdict(JoinVerdict.GRANTED)
    for number, kind in ((0, JoinPending), (2, InviteUsed), (4, InviteExpired), (99, JoinPending)):
        with pytest.raises(kind):
            check_verdict(number)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_codes_mailboxes_and_proofs_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    raw = {name: bytes.fromhex(vector[name]) for name in ("secret", "newcomer", "proof", "mailbox")}
    invitation = Invitation(
        vector["hub_address"],
        PublicKey(bytes.fromhex(vector["hub_key"])),
        ConversationId(bytes.fromhex(vector["conversation"])),
        PublicKey(bytes.fromhex(vector["inviter"])),
        Role[vector["role"].upper()],
        int(vector["expire_time_ms"]),
        raw["secret"],
    )
    assert encode_invitation(invitation) == vector["code"]
    assert decode_invitation(vector["code"]) == invitation
    assert invitation.mailbox == raw["mailbox"]
    assert invitation.proof(PublicKey(raw["newcomer"])) == raw["proof"]


def test_grants_since_an_invitation_are_those_with_a_later_time() -> None:
    """The store's clock orders its own grants (TRUST-26)."""
    inviter = Writer(1)
    genesis = inviter.genesis()
    log, grant = Log(genesis.conversation), Grant(BOB, Role.WRITER)
    entry = inviter.write(genesis.conversation, Member(grant), parents=[genesis])
    log.admit(genesis)
    log.admit(entry)
    made = entry.header.create_time_ms
    issued = Issued(replace(INVITATION, inviter=inviter.public), "bob", made - 1)
    assert has_unknown_grant(issued, log, is_own)
    assert not has_unknown_grant(replace(issued, create_time_ms=made), log, is_own)
    assert not has_unknown_grant(replace(issued, granted=(grant,)), log, is_own)
    assert not has_unknown_grant(issued, log, lambda _: False)  # another device of the key wrote it


def is_own(entry: Entry) -> bool:
    return entry.header.author == Writer(1).public
