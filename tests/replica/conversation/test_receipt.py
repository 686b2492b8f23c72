"""Receipts: signed by their host over every field, and bound to the findings."""

from dataclasses import asdict, fields, replace

import pytest

from replica.conversation.receipt import (
    Finding,
    Judge,
    Outcome,
    Receipt,
    ReceiptInvalid,
    ReplayMode,
    check_receipt,
    check_reply,
    findings_digest,
    sign_receipt,
    summary_of,
)
from replica.ids import ConversationId, Digest, EntryId
from replica.io.calls.replays import decode_receipt, encode_receipt
from tests.support.writers import Writer

HOST = Writer(3)
ANY, EARLIER, LATER = (Digest(letter * 32) for letter in (b"d", b"a", b"z"))
RECEIPT = sign_receipt(
    Receipt(
        host=HOST.public, conversation=ConversationId(b"c" * 32), log_digest=ANY, entries=9, mode=2,
        outcome=2, accepted=3, differing=1, undecided=0, tokens=70, profile=ANY,
        numerics_class=ANY, findings_digest=ANY, time_ms=1_700_000_000_000, refused=1, open=1,
        from_entry=EntryId(b"f" * 32), first=EntryId(b"g" * 32), first_cause=1, first_token=4,
        further=(Judge(EARLIER, ANY), Judge(LATER, ANY)),
    ),
    HOST.key,
)  # fmt: skip


def test_a_receipt_verifies_also_after_it_was_a_file():
    check_receipt(RECEIPT)
    check_receipt(RECEIPT, HOST.public)
    again = decode_receipt(encode_receipt(RECEIPT))
    assert again == RECEIPT
    bare = sign_receipt(
        replace(RECEIPT, from_entry=EntryId(b""), first=EntryId(b""), first_token=-1), HOST.key
    )
    check_receipt(decode_receipt(encode_receipt(bare)))


@pytest.mark.parametrize("name", [field.name for field in fields(Receipt)])
def test_a_receipt_with_any_field_changed_is_refused(name: str):
    value = getattr(RECEIPT, name)
    if isinstance(value, bytes):
        changed = bytes([value[0] ^ 1]) + value[1:]
    else:
        changed = value[:-1] if isinstance(value, tuple) else value + 1
    with pytest.raises(ReceiptInvalid):
        check_receipt(replace(RECEIPT, **{name: changed}))


@pytest.mark.parametrize("name", ["conversation", "first", "from_entry", "signature", "host"])
def test_a_receipt_with_a_field_cut_off_is_refused(name: str):
    with pytest.raises(ReceiptInvalid):
        check_receipt(replace(RECEIPT, **{name: getattr(RECEIPT, name)[:-1]}))


@pytest.mark.parametrize(
    "further",
    [
        (Judge(LATER, ANY), Judge(EARLIER, ANY)),
        (Judge(EARLIER, ANY), Judge(EARLIER, LATER)),
        (Judge(ANY, ANY),),
        (Judge(EARLIER, Digest(ANY[1:])),),
        (Judge(Digest(b""), ANY),),
    ],
    ids=["descending", "repeated", "the first profile", "a short class", "no profile"],
)
def test_further_profiles_in_another_form_are_refused_though_signed(further: tuple[Judge, ...]):
    with pytest.raises(ReceiptInvalid):
        check_receipt(sign_receipt(replace(RECEIPT, further=further), HOST.key))


def test_a_receipt_of_one_profile_is_signed_as_before():
    # What hosts signed before receipts could state further profiles.
    bare = replace(RECEIPT, further=())
    signature = (
        "56de408cec31b1a8126c8ee629cd579bcc909b852764e8ce60556b321e9275d2"
        "36b30b0df03c14b397409fcce369456e22ae85eb0a79073d6a976abdc204d107"
    )
    assert sign_receipt(bare, HOST.key).signature.hex() == signature


def answer(letter: bytes, outcome: Outcome, cause: int = 0, token_index: int = -1) -> Finding:
    found = EntryId(letter * 32)
    return Finding(found, found, ANY, outcome, cause, token_index, checked_tokens=7)


FINDINGS = [answer(b"g", Outcome.DIFFERS, 1, 4), answer(b"h", Outcome.ACCEPTED)]
OF_FINDINGS = sign_receipt(
    replace(
        RECEIPT, accepted=1, differing=1, tokens=14, findings_digest=findings_digest(FINDINGS)
    ),
    HOST.key,
)  # fmt: skip


def reply(receipt: Receipt, findings: list[Finding] = FINDINGS) -> None:
    check_reply(
        receipt, findings, host=HOST.public, conversation=RECEIPT.conversation,
        mode=ReplayMode.VERIFY, from_entry=RECEIPT.from_entry,
    )  # fmt: skip


def test_a_receipt_is_of_what_was_asked_and_of_the_findings_in_any_order():
    reply(OF_FINDINGS)
    reply(OF_FINDINGS, FINDINGS[::-1])


@pytest.mark.parametrize("name", ["conversation", "mode", "from_entry", "host"])
def test_the_receipt_of_another_replay_is_refused_though_signed(name: str):
    other = {"conversation": b"o" * 32, "from_entry": b"", "mode": 1, "host": Writer(4).public}
    key = Writer(4).key if name == "host" else HOST.key
    with pytest.raises(ReceiptInvalid):
        reply(sign_receipt(replace(OF_FINDINGS, **{name: other[name]}), key))


@pytest.mark.parametrize(
    "name",
    ["outcome", "accepted", "differing", "undecided", "tokens", "first_cause", "first_token"],
)
def test_a_receipt_that_does_not_sum_up_the_findings_is_refused_though_signed(name: str):
    changed = replace(OF_FINDINGS, **{name: getattr(OF_FINDINGS, name) + 1})
    with pytest.raises(ReceiptInvalid):
        reply(sign_receipt(changed, HOST.key))


def test_a_receipt_names_a_first_answer_exactly_where_not_all_are_accepted():
    accepted = [answer(b"h", Outcome.ACCEPTED)]
    summary = summary_of(accepted)
    none = {"first": EntryId(b""), "first_cause": 0, "first_token": -1}
    receipt = replace(RECEIPT, **asdict(summary), **none)
    reply(sign_receipt(receipt, HOST.key), accepted)
    for first in (FINDINGS[1], FINDINGS[0]):
        with pytest.raises(ReceiptInvalid):
            reply(sign_receipt(replace(receipt, first=first.answer), HOST.key), accepted)


def test_two_findings_of_one_answer_are_refused():
    twice = [answer(b"h", Outcome.ACCEPTED)] * 2
    none = {"first": EntryId(b""), "first_cause": 0, "first_token": -1}
    receipt = replace(RECEIPT, **asdict(summary_of(twice)), **none)
    with pytest.raises(ReceiptInvalid):
        reply(sign_receipt(receipt, HOST.key), twice)


def test_numbers_out_of_range_and_bytes_that_are_no_receipt_are_refused():
    for name in ("mode", "outcome", "first_cause"):
        with pytest.raises(ReceiptInvalid):
            check_receipt(replace(RECEIPT, **{name: 300}))
    with pytest.raises(ReceiptInvalid):
        decode_receipt(b"\xff")


def test_findings_with_numbers_out_of_range_or_cut_off_ids_are_refused():
    changes = ({"outcome": 300}, {"cause": -1}, {"answer": b"g" * 33}, {"render_digest": b"d"})
    for change in changes:
        with pytest.raises(ReceiptInvalid, match="of a finding"):
            reply(OF_FINDINGS, [replace(FINDINGS[0], **change), FINDINGS[1]])


def test_the_receipt_of_another_host_is_refused():
    with pytest.raises(ReceiptInvalid):
        check_receipt(RECEIPT, Writer(4).public)


def test_the_findings_digest_depends_on_each_finding_and_not_on_their_order():
    one = Finding(EntryId(b"a" * 32), EntryId(b"s" * 32), ANY, Outcome.ACCEPTED)
    two = replace(one, answer=EntryId(b"b" * 32))
    assert findings_digest([one, two]) == findings_digest([two, one])
    for changed in (replace(two, outcome=2), replace(two, token_index=3), replace(two, cause=4)):
        assert findings_digest([one, changed]) != findings_digest([one, two])
