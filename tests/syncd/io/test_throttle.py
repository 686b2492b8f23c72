"""The cost budget applied to calls and frames of a served hub (LIM-8)."""

import pytest

from replica.ids import ConversationId, EntryId
from replica.limits import BURST_UNITS, WAIT_S_MAX
from replica.link.frame import Frame
from replica.link.messages import Ack, Entries
from replica.log.body import Message, Speaker, Text, ToolResult
from replica.log.entry import Entry
from replica.refusals import NotAllowed, RateLimited
from syncd.bounds.budget import STRANGERS, Budget, units_of_entries
from syncd.bounds.shares import Payer
from syncd.io import throttle as module
from syncd.io.throttle import CALL_BYTES, Throttle
from syncd.links.fan_out import HubEffects
from tests.support.scene import Scene, index
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def _late(scene: Scene) -> Throttle:
    budget = Budget()
    throttle = Throttle(scene.hub, budget)
    throttle.charge(scene.writer.public, scene.id, sent_bytes=500 * BURST_UNITS)
    return throttle


def test_a_call_of_the_heaviest_key_is_told_when_to_come_again(scene: Scene) -> None:
    throttle = _late(scene)
    with pytest.raises(RateLimited) as error:
        throttle.check(scene.writer.public, scene.id)
    assert error.value.retry_after_s is not None
    assert 0 < error.value.retry_after_s < 1


def test_strangers_and_revocations_do_not_wait_for_it(scene: Scene) -> None:
    throttle = _late(scene)
    throttle.check(Writer(9).public, scene.id)
    grant = scene.grant(Writer(2).public)
    throttle.check(scene.writer.public, scene.id, Entries(scene.id, (grant,)))


def test_a_call_that_names_no_conversation_is_paid_for_by_strangers_or_a_creator(
    scene: Scene,
) -> None:
    throttle, unknown = Throttle(scene.hub, Budget()), ConversationId(bytes(32))
    throttle.charge(Writer(9).public, unknown, sent_bytes=500 * BURST_UNITS)
    with pytest.raises(RateLimited):
        throttle.call(Writer(8).public)
    throttle.call(scene.writer.public)


def test_calls_that_name_no_conversation_are_charged(scene: Scene) -> None:
    throttle, stranger = Throttle(scene.hub, Budget()), Writer(9).public
    calls = 0
    with pytest.raises(RateLimited):
        while calls < 2 * 400 * BURST_UNITS // CALL_BYTES:
            throttle.call(stranger)
            calls += 1
    assert calls > 1


def test_a_push_that_cannot_be_read_is_charged_as_one_that_can(scene: Scene) -> None:
    throttle, stranger = Throttle(scene.hub, Budget()), Writer(9).public
    before = BURST_UNITS // units_of_entries(1000)
    for _ in range(before + 1):
        throttle.call(stranger, entries=1000)
    with pytest.raises(RateLimited):
        throttle.call(stranger, entries=1)


def test_the_reserve_for_revocations_is_used_up(scene: Scene) -> None:
    throttle, grant = Throttle(scene.hub, Budget()), scene.grant(Writer(2).public)
    message = Entries(scene.id, (grant,))
    throttle.charge(scene.writer.public, scene.id, message, sent_bytes=500 * BURST_UNITS)
    with pytest.raises(RateLimited):
        throttle.check(scene.writer.public, scene.id, message)


async def test_a_frame_waits_for_a_bounded_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("syncd.io.throttle.asyncio.sleep", sleep)
    throttle = Throttle(scene.hub, Budget())
    throttle.charge(scene.writer.public, scene.id, sent_bytes=100 * 400 * BURST_UNITS)
    await throttle.wait(scene.writer.public, scene.id, Entries(scene.id, tuple(scene.chain(1))))
    assert waited == [WAIT_S_MAX]


async def test_a_frame_of_the_heaviest_key_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("syncd.io.throttle.asyncio.sleep", sleep)
    message = Entries(scene.id, tuple(scene.chain(1)))
    await _late(scene).wait(scene.writer.public, scene.id, message)
    assert len(waited) == 1
    await _late(scene).wait(Writer(9).public, scene.id, message)
    assert len(waited) == 1


def test_the_work_on_the_log_is_charged_to_whoever_brings_the_entry(scene: Scene) -> None:
    """A revocation judges the entries of its key again, which its frame does not show."""
    bob = Writer(2)
    grant = scene.grant(bob.public)
    scene.give(grant)
    at = scene.genesis
    for _ in range(100):
        scene.give(at := bob.write(scene.id, said("x"), parents=[at]))
    assert _units(scene, scene.revoke(bob.public)) > 100 // 4


def test_the_fields_of_a_body_are_charged(scene: Scene) -> None:
    """Each is two bytes in a frame, and takes as long as an entry that is judged again."""
    parts = (ToolResult("x", (Text("y"),) * 256),) * 10
    many = scene.writer.write(scene.id, Message(Speaker.TOOL, parts), parents=[scene.genesis])
    assert _units(scene, many) > 10 * 2 * 256 // 4
    long = scene.writer.write(scene.id, said("x" * 100_000), parents=[scene.genesis])
    assert _units(scene, long) < 30


def _units(scene: Scene, entry: Entry) -> int:
    """Return what a hub charges for an entry."""
    budget, units = Budget(), list[int]()
    throttle = Throttle(scene.hub, budget)
    charge = budget.charge

    def noted(payer: Payer, count: int, now: float, *, reserved: bool = False) -> None:
        units.append(count)
        charge(payer, count, now, reserved=reserved)

    budget.charge = noted  # type: ignore[method-assign]

    def receive() -> HubEffects:
        scene.give(entry)
        return HubEffects()

    throttle.charged(scene.writer.public, scene.id, Entries(scene.id, (entry,)), receive)
    return units[-1]


def test_a_key_is_a_stranger_until_its_first_work_as_a_member(scene: Scene) -> None:
    throttle = Throttle(scene.hub, Budget())
    member = scene.writer.public
    assert throttle.payer_of(member) is STRANGERS
    throttle.charge(member, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(member).key == member
    throttle.charge(Writer(9).public, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(Writer(9).public) is STRANGERS


def test_a_member_pays_in_the_pool_of_the_creator(scene: Scene) -> None:
    throttle, member = Throttle(scene.hub, Budget()), Writer(2)
    scene.give(scene.grant(member.public))
    throttle.note_established()
    throttle.charge(member.public, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(member.public) == Payer(scene.writer.public, member.public)


def test_a_member_pays_also_while_its_conversation_is_not_in_memory(scene: Scene) -> None:
    throttle, other = Throttle(scene.hub, Budget()), Writer(3)
    genesis = other.genesis()
    index(scene.hub, genesis.conversation, [genesis])
    throttle.charge(other.public, genesis.conversation, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(other.public).key == other.public


def test_a_message_that_is_refused_is_charged_all_the_same(scene: Scene) -> None:
    throttle, message = Throttle(scene.hub, Budget()), Entries(scene.id, tuple(scene.chain(1)))

    def refuse() -> HubEffects:
        raise NotAllowed

    with pytest.raises(NotAllowed):
        throttle.charged(scene.writer.public, scene.id, message, refuse)
    assert throttle.payer_of(scene.writer.public).key == scene.writer.public


def test_a_key_pays_for_what_is_sent_on_its_own_link_alone(scene: Scene) -> None:
    scene.join(other := Writer(2))
    own, others = sorted(scene.hub.links)
    throttle, long = Throttle(scene.hub, Budget()), (EntryId(bytes(32)),) * 20_000
    sent = HubEffects(send=((others, Frame.of(Ack(scene.id, long), "to_client")),))
    throttle.charge_answer(own, scene.writer.public, sent)
    assert throttle.payer_of(scene.writer.public) is STRANGERS
    assert throttle.answered == {}
    throttle.charge_answer(others, other.public, sent)
    assert throttle.payer_of(other.public).key == other.public
    assert throttle.answered == {others: scene.id}


def test_payers_beyond_a_bound_are_strangers_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAYERS_MAX", 1)
    throttle = Throttle(scene.hub, Budget())
    other = Writer(2)
    scene.give(scene.grant(other.public))
    for key in (scene.writer.public, other.public):
        throttle.charge(key, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(scene.writer.public) is STRANGERS
    assert throttle.payer_of(other.public).key == other.public


def test_a_removed_key_is_a_stranger_with_its_next_work(scene: Scene) -> None:
    throttle = Throttle(scene.hub, Budget())
    member = Writer(2)
    scene.give(scene.grant(member.public))
    throttle.charge(member.public, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(member.public).key == member.public
    scene.give(scene.revoke(member.public))
    throttle.charge(member.public, scene.id, sent_bytes=CALL_BYTES)
    assert throttle.payer_of(member.public) is STRANGERS
