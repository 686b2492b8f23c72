"""The disk of a hub is bounded per creator and in all (LIM-15)."""

import pytest

from replica import limits
from replica.ids import ConversationId
from replica.link.messages import Entries
from replica.log.body import Body, Cancel, Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from replica.refusals import QuotaExceeded
from syncd.bounds.disk_quota import FILE_BYTES, ROW_BYTES, DiskQuota, Reserve, stored_bytes
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene, index
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said

ADA, BOB, EVE = (Writer(number).public for number in (1, 2, 3))
ONE, TWO, THREE = (ConversationId(bytes([n]) * 32) for n in (1, 2, 3))
LARGE = "x" * 50_000


def test_the_logs_and_blobs_of_a_creator_are_bounded_together() -> None:
    quota = DiskQuota(creator_max=100)
    quota.set_log(ONE, ADA, 40)
    quota.set_log(TWO, ADA, 10)
    quota.set_blobs(TWO, "blobs", 30, 0)
    quota.set_blobs(TWO, "expiring", 10, 0)
    quota.check_blobs(ONE, 10)
    with pytest.raises(QuotaExceeded, match="this creator"):
        quota.check_blobs(ONE, 11)
    quota.check(ADA, 10)
    quota.check(BOB, 100)
    with pytest.raises(QuotaExceeded, match="this creator"):
        quota.check(ADA, 11)
    quota.release(TWO)
    quota.check(ADA, 60)


@pytest.mark.parametrize(
    ("creator", "more", "fits"),
    [(EVE, 1, False), (ADA, 100, True), (BOB, 200, False), (BOB, 199, True)],
)
def test_on_a_nearly_full_disk_the_heaviest_creators_are_refused_first(
    creator: bytes, more: int, fits: bool
) -> None:
    quota = DiskQuota(hub_max=1_600)
    quota.set_log(ONE, EVE, 1_300)
    quota.set_log(TWO, ADA, 100)
    quota.set_log(THREE, BOB, 1)
    if fits:
        quota.check(creator, more)  # type: ignore[arg-type]  # keys are bytes
    else:
        with pytest.raises(QuotaExceeded):
            quota.check(creator, more)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene(Policy(disk_creator_bytes_max=60_000)).begin()


def test_entries_beyond_it_are_refused_but_those_of_members_and_cancels(scene: Scene) -> None:
    entry = scene.say(LARGE)
    scene.say(LARGE)
    assert scene.client.faults[-1] == "QUOTA_EXCEEDED"
    assert set(scene.held.log.entries) == {scene.genesis.id, entry.id}
    grant = scene.grant(BOB, Role.READER)
    scene.client.append(grant)
    assert grant.id in scene.held.log.entries
    assert scene.hub.disk.total == stored_bytes(scene.held.log.entries.values())


def test_small_blobs_count_as_the_files_that_they_are() -> None:
    quota = DiskQuota(creator_max=100 * FILE_BYTES)
    quota.set_log(ONE, ADA, 1)
    quota.set_blobs(ONE, "blobs", 99, 98)
    quota.check_blobs(ONE, 1, 1)
    with pytest.raises(QuotaExceeded, match="this creator"):
        quota.check_blobs(ONE, 1, 2)
    quota.set_blobs(ONE, "blobs", 50, 50)
    assert quota.total == 1 + 50 + 50 * FILE_BYTES


def pushed(scene: Scene, writer: Writer, body: Body) -> str:
    """Push one entry behind the genesis; return the reason for which it is refused, or none."""
    writer.epoch += 1  # a refused entry leaves a gap
    return _outcome(scene, writer, writer.write(scene.id, body, parents=[scene.genesis]))


def _outcome(scene: Scene, writer: Writer, entry: Entry) -> str:
    _, faults = scene.hub.begin_push(writer.public).whole(Entries(scene.id, (entry,)), 0.0)
    fault = faults[entry.id]
    return fault.reason if fault is not None else ""


def test_members_and_cancels_fill_no_disk_either(scene: Scene, monkeypatch) -> None:
    """A CANCEL with a long note, or a MEMBER of anyone, was stored without any bound."""
    monkeypatch.setattr(limits, "DISK_RESERVE_BYTES", 8_000)
    bob = Writer(2)
    scene.client.append(scene.grant(BOB, Role.WRITER))
    scene.say(LARGE)
    scene.say("x" * 7_000)
    assert scene.hub.disk.total > 57_000
    cancels = iter(range(100))
    assert pushed(scene, bob, Cancel("x" * 5_000)) == "QUOTA_EXCEEDED"
    while not (reason := pushed(scene, bob, Cancel(f"{next(cancels)}" + "x" * 700))):
        pass
    assert reason == "QUOTA_EXCEEDED"
    assert 1 < next(cancels) < 20
    assert pushed(scene, bob, Member(Grant(EVE, Role.READER))) in ("", "ROLE_FORBIDS")
    grant = scene.grant(BOB, Role.READER)
    scene.client.append(grant)
    assert grant.id in scene.held.log.entries
    assert scene.hub.disk.total < 60_000 + 8_000


def test_a_request_that_filled_the_disk_of_a_creator_is_answered(scene: Scene, monkeypatch) -> None:
    """Its seal was refused, and whoever had asked waited without a word."""
    monkeypatch.setattr(limits, "ANSWERS_RESERVE_BYTES", 4_000)
    hal = Writer(7)
    scene.client.append(scene.grant(hal.public, Role.HOST))
    scene.say(LARGE)
    ask = scene.writer.write(scene.id, Request(hal.public, Sampling()), parents=[scene.genesis])
    scene.give(ask)
    scene.say("x" * (60_000 - scene.hub.disk.total - 700))
    sealing = seal_of(scene.held, ask.id, (ask.id,), None)
    listed = [ask, *(scene.held.log.entries[i] for i in sealing.membership_heads)]
    seal = hal.write(scene.id, sealing, parents=[ask], listed=listed)
    assert pushed(scene, scene.writer, said("x" * 700)) == "QUOTA_EXCEEDED"
    assert _outcome(scene, hal, seal) == ""
    assert _outcome(scene, hal, hal.write(scene.id, answer("y" * 2_000), parents=[seal])) == ""
    late = hal.write(scene.id, answer("z" * 2_000), parents=[seal])
    assert _outcome(scene, hal, late) == "QUOTA_EXCEEDED"
    assert scene.hub.disk.total < 60_000 + 4_000
    forged = scene.writer.write(scene.id, answer(), parents=[seal])
    assert _outcome(scene, scene.writer, forged) == "QUOTA_EXCEEDED"
    assert pushed(scene, scene.writer, Member(Grant(EVE, Role.READER))) == ""


def test_the_reserve_for_all_has_an_end(scene: Scene) -> None:
    quota = DiskQuota(hub_max=64_000)
    quota.set_log(ONE, ADA, 64_000)
    quota.check(ADA, 1_000, Reserve(10_000_000, 1.0))
    with pytest.raises(QuotaExceeded, match="used up"):
        quota.check(ADA, 1_001, Reserve(10_000_000, 1.0))
    quota.check(ADA, 500, Reserve(10_000_000, 0.5))
    with pytest.raises(QuotaExceeded, match="used up"):
        quota.check(ADA, 501, Reserve(10_000_000, 0.5))
    with pytest.raises(QuotaExceeded, match="used up"):
        quota.check(ADA, 1)


def test_what_is_here_already_is_acked_and_not_refused(scene: Scene) -> None:
    entry = scene.say(LARGE)
    _, faults = scene.hub.begin_push(ADA).whole(Entries(scene.id, (entry,)), 0.0)
    assert faults == {entry.id: None}


def test_a_member_s_entries_count_for_the_creator_and_a_stranger_s_for_itself(
    scene: Scene,
) -> None:
    bob = Writer(2)
    scene.client.append(scene.grant(BOB, Role.WRITER))
    scene.say(LARGE)
    words = bob.write(scene.id, said(LARGE), parents=[scene.genesis])
    _, faults = scene.hub.begin_push(BOB).whole(Entries(scene.id, (words,)), 0.0)
    fault = faults[words.id]
    assert fault is not None
    assert fault.reason == "QUOTA_EXCEEDED"
    genesis = bob.genesis()
    own = bob.write(genesis.conversation, said("x"), parents=[genesis])
    _, faults = scene.hub.begin_push(BOB).whole(Entries(genesis.conversation, (genesis, own)), 0.0)
    assert not any(faults.values())


def test_a_stranger_sees_no_difference(scene: Scene) -> None:
    scene.say(LARGE)
    unknown = Writer(8).genesis()
    words = Writer(3).write(scene.id, said(LARGE), parents=[scene.genesis])
    other = Writer(3).write(unknown.conversation, said(LARGE), parents=[unknown])
    reasons = []
    for first, entry in ((scene.genesis, words), (unknown, other)):
        message = Entries(entry.conversation, (first, entry))
        _, faults = scene.hub.begin_push(EVE).whole(message, 0.0)
        reasons.append({fault.reason for fault in faults.values() if fault is not None})
    assert reasons[0] == reasons[1] == {"CONVERSATION_NOT_FOUND"}


def test_a_restart_counts_what_is_stored_and_a_deletion_gives_it_back(scene: Scene) -> None:
    scene.say(LARGE)
    entries = list(scene.held.log.entries.values())
    hub = Hub(HUB_KEY, Policy(disk_creator_bytes_max=60_000, conversations_in_memory_max=1))
    hub.load(scene.id, entries)
    other = Writer(4).genesis()
    grant = Writer(4).write(other.conversation, Member(Grant(BOB, Role.READER)), parents=[other])
    index(hub, other.conversation, [other, grant], size_bytes=70_000)
    assert hub.disk.total == stored_bytes(entries) + 70_000
    with pytest.raises(QuotaExceeded):
        hub.disk.check(Writer(4).public, 1)
    hub.delete(scene.id)
    assert hub.disk.total == stored_bytes(entries) + 70_000  # until it is erased
    hub.disk.release(scene.id)
    assert hub.disk.total == 70_000
    assert stored_bytes(entries) == sum(e.size_bytes for e in entries) + ROW_BYTES * len(entries)
