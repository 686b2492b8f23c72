"""Proof of possession and tickets (spec/04-link §3)."""

from dataclasses import replace

import pytest

from replica.conversation import ClockInvalid
from replica.ids import PublicKey
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import NO_CERTIFICATE, Authenticator, Challenge, ClockAhead, prove
from replica.refusals import PeerIdentityChanged, ProofInvalid, Unauthenticated
from spec.vectors.make.build import pae
from tests.support.writers import Writer

HUB, ADA, BOB = Writer(1), Writer(2), Writer(3)
NONCE = b"n" * 32
NOW_MS = 1_700_000_000_000
LIFETIME_MS = TICKET_LIFETIME_S * 1000
CERTIFICATE = b"c" * 32


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator(HUB.key, b"secret" * 6)


def _prove(challenge: Challenge, **other: object) -> bytes:
    how = {"expected_server": HUB.public, "now_ms": NOW_MS, **other}
    return prove(ADA.key, NONCE, challenge, **how)  # type: ignore[arg-type]


def _ticket(authenticator: Authenticator) -> bytes:
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS)
    return authenticator.admit(
        ADA.public, NONCE, challenge.expire_time_ms, _prove(challenge), NOW_MS
    )


def test_a_proof_yields_a_ticket_bound_to_the_key(authenticator: Authenticator) -> None:
    assert authenticator.holder(_ticket(authenticator), NOW_MS) == ADA.public


def test_the_transcript_has_fixed_widths_and_names_the_role(authenticator: Authenticator) -> None:
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS)
    fields = (
        HUB.public + ADA.public + NONCE + challenge.server_nonce + NO_CERTIFICATE
        + challenge.expire_time_ms.to_bytes(8, "little")
    )  # fmt: skip
    tag = "antiphon/v1/authenticate"
    assert challenge.signature == HUB.key.sign(pae(tag, fields + b"\x01"))
    assert _prove(challenge) == ADA.key.sign(pae(tag, fields + b"\x02"))


def test_a_proof_is_valid_for_its_key_only(authenticator: Authenticator) -> None:
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS)
    proof, expire_ms = _prove(challenge), challenge.expire_time_ms
    for key, nonce, expire, signature in (
        (BOB.public, NONCE, expire_ms, proof),
        (ADA.public, b"m" * 32, expire_ms, proof),
        (ADA.public, NONCE, expire_ms - 1, proof),
        (ADA.public, NONCE, expire_ms, challenge.signature),
        (ADA.public[:31], NONCE, expire_ms, proof),
        (ADA.public, b"", expire_ms, proof),
    ):
        with pytest.raises(ProofInvalid):
            authenticator.admit(PublicKey(key), nonce, expire, signature, NOW_MS)


def test_a_challenge_expires(authenticator: Authenticator) -> None:
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS)
    proof = _prove(challenge)
    for now_ms in (NOW_MS + LIFETIME_MS, NOW_MS - 1):
        with pytest.raises(ProofInvalid):
            authenticator.admit(ADA.public, NONCE, challenge.expire_time_ms, proof, now_ms)
    with pytest.raises(ClockAhead) as refused:
        _prove(challenge, now_ms=NOW_MS + LIFETIME_MS)
    assert "15 minutes" in refused.value.next_step
    assert TICKET_LIFETIME_S == 15 * 60


def test_a_ticket_expires_and_ends_with_the_secret(authenticator: Authenticator) -> None:
    ticket = _ticket(authenticator)
    assert authenticator.holder(ticket, NOW_MS + LIFETIME_MS - 1) == ADA.public
    with pytest.raises(Unauthenticated):
        authenticator.holder(ticket, NOW_MS + LIFETIME_MS)
    assert authenticator.holder(ticket, NOW_MS - 1_000) == ADA.public
    with pytest.raises(Unauthenticated, match="the clock here was ahead"):
        authenticator.holder(ticket, NOW_MS - 60_001)
    with pytest.raises(Unauthenticated):
        Authenticator(HUB.key, b"another").holder(ticket, NOW_MS)


def test_a_server_before_1970_makes_no_challenge(authenticator: Authenticator) -> None:
    with pytest.raises(ClockInvalid):
        authenticator.challenge(ADA.public, NONCE, -1)


@pytest.mark.parametrize("at", range(0, 72, 9))
def test_no_bit_of_a_ticket_may_change(authenticator: Authenticator, at: int) -> None:
    ticket = bytearray(_ticket(authenticator))
    ticket[at] ^= 1
    with pytest.raises(Unauthenticated):
        authenticator.holder(bytes(ticket), NOW_MS)
    with pytest.raises(Unauthenticated):
        authenticator.holder(b"", NOW_MS)


def test_a_client_checks_the_server(authenticator: Authenticator) -> None:
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS)
    assert _prove(challenge, expected_server=None) == _prove(challenge)
    with pytest.raises(PeerIdentityChanged, match="the server shows"):
        _prove(challenge, expected_server=BOB.public)
    with pytest.raises(ProofInvalid):
        _prove(challenge, certificate_digest=CERTIFICATE)
    for changed in (
        {"server_key": BOB.public},
        {"server_nonce": b"x" * 32},
        {"server_nonce": b"x"},
        {"expire_time_ms": NOW_MS + 5},
        {"signature": bytes(64)},
    ):
        with pytest.raises(ProofInvalid):
            _prove(replace(challenge, **changed), expected_server=None)


def test_a_certificate_is_part_of_the_transcript() -> None:
    authenticator = Authenticator(HUB.key, b"secret")
    challenge = authenticator.challenge(ADA.public, NONCE, NOW_MS, CERTIFICATE)
    proof = _prove(challenge, certificate_digest=CERTIFICATE)
    step = (ADA.public, NONCE, challenge.expire_time_ms, proof, NOW_MS)
    assert authenticator.admit(*step, CERTIFICATE)
    with pytest.raises(ProofInvalid):
        authenticator.admit(*step)
    with pytest.raises(ProofInvalid):
        _prove(challenge)


@pytest.mark.parametrize(("key", "nonce"), [(b"k" * 31, NONCE), (b"k" * 32, NONCE[1:])])
def test_a_challenge_is_for_a_key_and_a_nonce_of_32_bytes_each(
    authenticator: Authenticator, key: bytes, nonce: bytes
) -> None:
    with pytest.raises(ProofInvalid):
        authenticator.challenge(PublicKey(key), nonce, NOW_MS)
