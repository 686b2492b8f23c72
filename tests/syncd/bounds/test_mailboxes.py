"""The hub's mailboxes: bounded, alike for everyone, and stored (spec/09-trust §5)."""

import pytest

from replica import limits
from replica.ids import PublicKey
from replica.refusals import ArgumentInvalid, QuotaExceeded
from syncd.bounds.mailboxes import SHARDS, UNANSWERED, Mailboxes

ADA, BOB, EVE = (PublicKey(bytes([n]) * 32) for n in (1, 2, 3))
NAME, OTHER = b"n" * 32, b"o" * 32
PROOF = b"p" * 32
NOW, END = 1_000, 1_000_000
GRANTED, USED = 1, 2


@pytest.fixture
def boxes() -> Mailboxes:
    held = Mailboxes()
    held.open(ADA, NAME, END, NOW)
    return held


def keys(count: int) -> list[PublicKey]:
    return [PublicKey(n.to_bytes(32, "big")) for n in range(10, 10 + count)]


def test_unknown_full_used_and_expired_mailboxes_answer_alike(boxes: Mailboxes) -> None:
    assert boxes.deposit(OTHER, BOB, PROOF, NOW) == UNANSWERED
    for key in keys(limits.DEPOSITS_MAX):
        assert boxes.deposit(NAME, key, PROOF, NOW) == UNANSWERED
    assert boxes.deposit(NAME, BOB, PROOF, NOW) == UNANSWERED  # full: dropped
    box = boxes.of(ADA, NAME, NOW)
    assert box is not None
    assert len(box.deposits) == limits.DEPOSITS_MAX
    assert BOB not in box.deposits
    boxes.answer(ADA, NAME, keys(1)[0], GRANTED, NOW)
    assert boxes.deposit(NAME, EVE, PROOF, NOW) == UNANSWERED  # used
    assert boxes.deposit(NAME, EVE, PROOF, END) == UNANSWERED


def test_an_answer_is_for_the_key_and_the_proof_it_was_given_to(boxes: Mailboxes) -> None:
    boxes.deposit(NAME, BOB, PROOF, NOW)
    boxes.deposit(NAME, EVE, PROOF, NOW)
    boxes.answer(ADA, NAME, BOB, GRANTED, NOW)
    assert boxes.deposit(NAME, BOB, PROOF, NOW) == GRANTED
    assert boxes.deposit(NAME, EVE, PROOF, NOW) == UNANSWERED
    assert boxes.deposit(NAME, BOB, b"q" * 32, NOW) == UNANSWERED
    assert boxes.deposit(NAME, BOB, PROOF, NOW) == GRANTED


def test_a_mailbox_is_read_answered_and_closed_by_its_owner_alone(boxes: Mailboxes) -> None:
    boxes.deposit(NAME, BOB, PROOF, NOW)
    assert boxes.of(EVE, NAME, NOW) is None
    boxes.answer(EVE, NAME, BOB, USED, NOW)
    boxes.close(EVE, NAME, NOW)
    assert boxes.deposit(NAME, BOB, PROOF, NOW) == UNANSWERED
    assert boxes.of(ADA, NAME, NOW) is not None
    with pytest.raises(ArgumentInvalid):
        boxes.open(EVE, NAME, END, NOW)
    boxes.close(ADA, NAME, NOW)
    assert boxes.of(ADA, NAME, NOW) is None


def test_opening_twice_keeps_the_proofs(boxes: Mailboxes) -> None:
    boxes.deposit(NAME, BOB, PROOF, NOW)
    boxes.open(ADA, NAME, END, NOW)
    box = boxes.of(ADA, NAME, NOW)
    assert box is not None
    assert set(box.deposits) == {BOB}


def test_opening_twice_keeps_the_later_time(boxes: Mailboxes) -> None:
    shards = boxes.open(ADA, NAME, END + 5, NOW)
    assert shards == {boxes.shard_of(NAME)}
    boxes.open(ADA, NAME, END, NOW)
    assert boxes.of(ADA, NAME, END + 4) is not None
    assert boxes.of(ADA, NAME, END + 5) is None


@pytest.mark.parametrize("owner", [ADA, EVE], ids=["its owner", "another"])
def test_an_expired_mailbox_is_opened_anew_by_any_key(boxes: Mailboxes, owner: PublicKey) -> None:
    boxes.deposit(NAME, BOB, PROOF, NOW)
    boxes.open(owner, NAME, 2 * END, END)
    box = boxes.of(owner, NAME, END)
    assert box is not None
    assert not box.deposits


def test_mailboxes_are_bounded_and_expired_ones_make_room() -> None:
    boxes = Mailboxes()
    per_key = limits.MAILBOXES_PER_KEY_MAX
    for number in range(per_key):
        boxes.open(ADA, number.to_bytes(32, "big"), END, NOW)
    with pytest.raises(QuotaExceeded):
        boxes.open(ADA, NAME, END, NOW)
    for owner in keys(limits.MAILBOXES_MAX // per_key - 1):
        for number in range(per_key):
            boxes.open(owner, owner[-2:] + number.to_bytes(30, "big"), END, NOW)
    assert len(boxes) == limits.MAILBOXES_MAX
    boxes.open(EVE, NAME, END, NOW)
    assert len(boxes) == limits.MAILBOXES_MAX
    assert boxes.of(ADA, bytes(32), NOW) is None  # the oldest of a key with most
    boxes.open(EVE, OTHER, 2 * END, END)
    assert len(boxes) == 1


def test_a_key_with_as_many_as_others_gets_no_place_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAILBOXES_MAX", 3)
    boxes = Mailboxes()
    for owner in (ADA, BOB, EVE):
        boxes.open(owner, owner, END, NOW)
    for owner in (keys(1)[0], ADA):
        with pytest.raises(QuotaExceeded):
            boxes.open(owner, NAME, END, NOW)
    assert {len(boxes), boxes.of(ADA, ADA, NOW) is not None} == {3, True}


def test_mailboxes_are_spread_over_the_shards_whatever_their_names_are() -> None:
    boxes = Mailboxes()
    for owner in keys(SHARDS):
        (shard,) = boxes.open(owner, b"one" + owner[3:], END, NOW)
        assert boxes.shard_of(b"one" + owner[3:]) == shard
    assert len({len(boxes.shard(index)) for index in range(SHARDS)}) == 1
    owner = keys(1)[0]
    shard = boxes.shard_of(b"one" + owner[3:])
    boxes.close(owner, b"one" + owner[3:], NOW)
    assert boxes.shard(shard) == b""


def test_an_expired_mailbox_is_not_loaded(boxes: Mailboxes) -> None:
    stored = boxes.shard(boxes.shard_of(NAME))
    for now_ms, count in ((END - 1, 1), (END, 0)):
        again = Mailboxes()
        again.load(0, stored, now_ms)
        assert len(again) == count


def test_a_mailbox_has_a_name_of_32_bytes() -> None:
    with pytest.raises(ArgumentInvalid, match="32 bytes"):
        Mailboxes().open(ADA, b"short", END, NOW)


@pytest.mark.parametrize("end", [NOW, NOW + 2 * 24 * 3600 * 1000])
def test_a_mailbox_ends_within_a_day_by_the_clock_of_the_hub(end: int) -> None:
    with pytest.raises(ArgumentInvalid, match="24 hours") as refused:
        Mailboxes().open(ADA, NAME, end, NOW)
    assert refused.value.next_step == "Compare this machine's clock with the hub's."


def test_stored_shards_hold_all(boxes: Mailboxes) -> None:
    for number in range(40):
        boxes.open(BOB, bytes([number]) * 32, END, NOW)
    boxes.deposit(NAME, BOB, PROOF, NOW)
    boxes.answer(ADA, NAME, BOB, GRANTED, NOW)
    again = Mailboxes()
    for index in range(SHARDS):
        again.load(index, boxes.shard(index), NOW)
    assert len(again) == len(boxes)
    assert [again.shard(index) for index in range(SHARDS)] == [
        boxes.shard(index) for index in range(SHARDS)
    ]
    assert again.deposit(NAME, BOB, PROOF, NOW) == GRANTED


def test_a_deposit_has_the_right_sizes_and_an_answer_a_number(boxes: Mailboxes) -> None:
    for name, proof in ((b"n", PROOF), (NAME, b"p")):
        with pytest.raises(ArgumentInvalid):
            boxes.deposit(name, BOB, proof, NOW)
    boxes.deposit(NAME, BOB, PROOF, NOW)
    for verdict in (0, 256, -1):
        with pytest.raises(ArgumentInvalid):
            boxes.answer(ADA, NAME, BOB, verdict, NOW)
