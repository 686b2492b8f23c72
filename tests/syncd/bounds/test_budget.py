"""The cost budget: who waits when there is more work than time (LIM-8)."""

from replica.ids import Digest, EntryId, PublicKey
from replica.limits import BURST_UNITS, HALF_LIFE_S, NEWCOMER_S, RESERVE_UNITS, UNITS_PER_S
from replica.link.messages import Close, Entries, Ids, Open
from replica.log.body import Grant, Member, Role
from syncd.bounds.budget import (
    NEWCOMERS,
    STRANGERS,
    Budget,
    is_reserved,
    units_of,
    units_of_work,
    units_sent,
    vouched,
)
from syncd.bounds.shares import Payer
from tests.support.scene import Scene
from tests.support.writers import Writer

ADA, EVE, BOB = (Payer(NEWCOMERS, PublicKey(bytes([n]) * 32)) for n in (1, 2, 3))
KEYS = [PublicKey(bytes([n]) * 32) for n in range(100, 200)]


def test_nobody_waits_while_the_hub_keeps_up() -> None:
    budget = Budget()
    budget.charge(EVE, BURST_UNITS, 10.0)
    assert budget.wait_s(EVE, 10.0) == 0
    budget.charge(EVE, UNITS_PER_S, 11.0)
    assert budget.wait_s(EVE, 11.0) == 0, "a second's work was done in the meantime"


def test_only_the_heaviest_keys_wait_while_the_hub_is_behind() -> None:
    budget = Budget()
    budget.charge(ADA, 20, 0.0)
    budget.charge(EVE, BURST_UNITS + UNITS_PER_S, 0.0)
    assert budget.wait_s(EVE, 0.0) * UNITS_PER_S == UNITS_PER_S + 20
    assert budget.wait_s(ADA, 0.0) == 0
    assert budget.wait_s(BOB, 0.0) == 0, "one that did nothing yet"
    assert budget.wait_s(EVE, 2.0) == 0, "the hub has worked it off"


def test_strangers_are_one_key() -> None:
    budget = Budget()
    budget.charge(ADA, UNITS_PER_S, 0.0)
    for _ in range(100):
        budget.charge(STRANGERS, BURST_UNITS // 50, 0.0)
    assert budget.wait_s(STRANGERS, 0.0) > 0
    assert budget.wait_s(ADA, 0.0) == 0


def test_work_counts_half_after_a_while_and_is_forgotten_at_last() -> None:
    budget = Budget()
    budget.charge(EVE, UNITS_PER_S, 0.0)
    budget.charge(ADA, UNITS_PER_S, 2 * HALF_LIFE_S)
    budget.charge(ADA, BURST_UNITS, 2 * HALF_LIFE_S)
    assert budget.wait_s(ADA, 2 * HALF_LIFE_S) > 0
    assert budget.wait_s(EVE, 2 * HALF_LIFE_S) == 0
    budget.charge(ADA, 100, 100 * HALF_LIFE_S)
    assert EVE not in budget._accounts


def test_messages_cost_by_what_they_bring() -> None:
    scene = Scene().begin()
    one, two = Entries(scene.id, tuple(scene.chain(1))), Entries(scene.id, tuple(scene.chain(2)))
    assert units_of(two) - units_of(one) == 15
    heads = (scene.genesis.position,) * 7
    digest = Digest(bytes(32))
    assert units_of(Open(scene.id, digest, heads)) - units_of(Open(scene.id, digest)) == 7
    assert units_of(Ids(scene.id, (EntryId(bytes(32)),) * 80)) - units_of(Ids(scene.id, ())) == 10
    assert units_of(Close(scene.id)) == 5
    assert units_sent(400_000) == 1_000


def test_changes_of_members_and_cancels_have_a_reserve() -> None:
    scene = Scene().begin()
    body = Member(Grant(Writer(2).public, Role.WRITER))
    grant = scene.writer.write(scene.id, body, parents=[scene.genesis])
    assert is_reserved(Entries(scene.id, (grant,)))
    assert not is_reserved(Entries(scene.id, (grant, *scene.chain(1))))
    assert not is_reserved(Entries(scene.id, ()))
    assert not is_reserved(Close(scene.id))
    budget = Budget()
    budget.charge(EVE, RESERVE_UNITS - 1, 0.0, reserved=True)
    assert budget.has_reserve(EVE, 0.0)
    budget.charge(EVE, 1, 0.0, reserved=True)
    assert not budget.has_reserve(EVE, 0.0)
    assert budget.has_reserve(ADA, 0.0)
    assert budget.has_reserve(EVE, HALF_LIFE_S)


def test_shares_are_by_creator_then_by_key() -> None:
    budget = Budget()
    ada, eve = KEYS[0], KEYS[1]
    for creator in (ada, eve):
        budget.note_established(creator)
    mine = budget.payer(ada, ada, 0.0)
    many = [budget.payer(key, eve, 0.0) for key in KEYS[2:]]
    budget.charge(mine, 3_000, 0.0)
    for payer in many:  # each less than the other creator's key, and much more together
        budget.charge(payer, 2_000, 0.0)
    assert budget.wait_s(mine, 0.0) == 0
    assert all(budget.wait_s(payer, 0.0) > 0 for payer in many)
    budget.charge(many[0], 2_000, 0.0)
    assert budget.wait_s(many[0], 0.0) > 0
    assert budget.wait_s(many[1], 0.0) == 0, "less than the others of its creator"


def test_creators_that_are_new_share_one_pool_for_a_while() -> None:
    budget = Budget()
    ada, *new = KEYS
    budget.note_established(ada)
    budget.charge(budget.payer(ada, ada, 0.0), 4_000, 0.0)
    for key in new:
        budget.charge(budget.payer(key, key, 0.0), 2_000, 0.0)
    assert budget.wait_s(budget.payer(ada, ada, 0.0), 0.0) == 0
    assert budget.wait_s(budget.payer(new[0], new[0], 0.0), 0.0) > 0
    assert budget.payer(new[0], new[0], NEWCOMER_S).pool == new[0]


def test_a_vouched_host_has_a_pool_of_its_own() -> None:
    budget = Budget()
    budget.charge(vouched(KEYS[0]), 500, 0.0)
    budget.charge(EVE, BURST_UNITS + 500, 0.0)
    assert budget.wait_s(vouched(KEYS[0]), 0.0) == 0
    assert budget.wait_s(EVE, 0.0) > 0
    assert vouched(KEYS[0]) != vouched(KEYS[1])


def test_work_on_the_log_is_charged_in_units() -> None:
    assert units_of_work(4_000) == 1_000
