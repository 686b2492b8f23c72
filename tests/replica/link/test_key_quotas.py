"""A hub's quotas on what one key leaves to all others in a conversation (LIM-5 to LIM-7)."""

import pytest

from replica import limits
from replica.ids import EntryId
from replica.link.messages import Entries
from replica.link.quotas import check_quotas
from replica.log.body import Cancel, Join, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from syncd.policy import Policy
from tests.support.call_count import calls
from tests.support.scene import Scene
from tests.support.stories import answer, cut_at, seal_of
from tests.support.writers import Writer, said

EVE = Writer(66)


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def push(scene: Scene, writer: Writer, *entries: Entry) -> list[str]:
    message = Entries(scene.id, entries)
    effects, outcomes = scene.hub.begin_push(writer.public).whole(message, 0.0)
    scene.network.perform(effects)
    return [fault.reason if fault is not None else "durable" for fault in outcomes.values()]


def _joins(scene: Scene, *parents: Entry) -> list[Entry]:
    lanes = (Writer(66, epoch=number + 1) for number in range(5))
    return [lane.write(scene.id, Join(), parents=parents or [scene.genesis]) for lane in lanes]


def test_a_reader_writes_a_few_entries_only(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READER_ENTRIES_MAX", 3)
    scene.client.append(scene.grant(EVE.public, Role.READER))
    joins = _joins(scene)
    assert push(scene, EVE, *joins) == ["ROLE_FORBIDS"] * 3 + ["QUOTA_EXCEEDED"] * 2
    assert push(scene, EVE, *joins[:3]) == ["ROLE_FORBIDS"] * 3, "what is held is no new entry"
    scene.client.append(scene.grant(EVE.public, Role.WRITER))
    assert push(scene, EVE, *joins) == ["durable"] * 5


@pytest.mark.parametrize("quota", ["READER_ENTRIES_MAX", "LANES_PER_KEY_MAX"])
def test_a_reader_may_resign_once_whatever_it_wrote(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, quota: str
) -> None:
    monkeypatch.setattr(limits, quota, 3)
    scene.client.append(scene.grant(EVE.public, Role.READER))
    push(scene, EVE, *_joins(scene))
    resignation = Member(Revocation(EVE.public))
    resigned, again, later = (
        Writer(66, epoch=number).write(scene.id, body, parents=[scene.genesis])
        for number, body in enumerate((resignation, resignation, Join()), 11)
    )
    assert push(scene, EVE, later) == ["QUOTA_EXCEEDED"]
    assert push(scene, EVE, resigned, again) == ["durable", "QUOTA_EXCEEDED"]
    assert not scene.held.is_member(EVE.public)


def test_a_key_has_a_number_of_lanes_only(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANES_PER_KEY_MAX", 3)
    scene.client.append(scene.grant(EVE.public, Role.WRITER))
    joins = _joins(scene)
    assert push(scene, EVE, *joins) == ["durable"] * 3 + ["QUOTA_EXCEEDED"] * 2
    longer = Writer(66, epoch=1)
    longer.write(scene.id, Join(), parents=[scene.genesis])
    assert push(scene, EVE, longer.write(scene.id, said("x"), parents=[scene.genesis])) == [
        "durable"
    ], "a lane may grow"


def test_pending_entries_count(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANES_PER_KEY_MAX", 3)
    peer = scene.join(EVE)
    [missing] = scene.chain(1)
    peer.send(Entries(scene.id, tuple(_joins(scene, missing))))
    assert len(scene.held.log.pending) == 3
    assert peer.faults.count("QUOTA_EXCEEDED") == 2


def test_an_owner_can_revoke_from_one_more_lane(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LANES_PER_KEY_MAX", 1)
    last = scene.grant(EVE.public)
    scene.client.append(last)
    other = Writer(1, epoch=2)
    revocation = other.write(scene.id, Member(Revocation(EVE.public)), parents=[last])
    message = other.write(scene.id, said("x"), parents=[scene.genesis])
    assert push(scene, other, revocation, message) == ["durable", "QUOTA_EXCEEDED"]


def test_a_key_is_revoked_by_another_a_few_times_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REVOCATIONS_PER_KEY_MAX", 2)
    scene.client.append(scene.grant(EVE.public, Role.WRITER))
    mine = EVE.write(scene.id, said("x"), parents=[scene.genesis])
    scene.give(mine)
    resigned = [
        EVE.write(scene.id, Member(Revocation(EVE.public, (cut_at(mine),))), parents=[grant],
                  listed=[mine])
        for grant in scene.held.log.in_send_order(scene.held.log.membership_heads()) * 3
    ]  # fmt: skip
    assert push(scene, EVE, *resigned) == ["durable"] * 2 + ["QUOTA_EXCEEDED"]
    scene.client.append(scene.revoke(EVE.public))
    assert EVE.public in scene.held.log.membership.kept, "her own don't use up the owner's"
    assert scene.held.log.roster.revocations(scene.writer.public, EVE.public) == 1


def test_a_host_seals_a_request_a_few_times_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEALS_PER_REQUEST_MAX", 2)
    hal = Writer(7)
    scene.client.append(scene.grant(hal.public, Role.HOST))
    body = Request(hal.public, Sampling())
    ask = scene.writer.write(scene.id, body, parents=[scene.genesis])
    scene.give(ask)
    ids: tuple[EntryId, ...] = (ask.id,)
    sealing = seal_of(scene.held, ask.id, ids, None)
    listed = [ask, *(scene.held.log.entries[i] for i in sealing.membership_heads)]
    seals = [hal.write(scene.id, sealing, parents=[ask], listed=listed) for _ in range(4)]
    assert push(scene, hal, *seals) == ["durable", "durable", "QUOTA_EXCEEDED", "QUOTA_EXCEEDED"]


def _asked(scene: Scene, hal: Writer) -> tuple[Entry, Entry, Entry]:
    """Let the owner grant HOST and ask; return the request, and its seal and answer to write."""
    scene.client.append(scene.grant(hal.public, Role.HOST))
    ask = scene.writer.write(scene.id, Request(hal.public, Sampling()), parents=[scene.genesis])
    scene.give(ask)
    sealing = seal_of(scene.held, ask.id, (ask.id,), None)
    listed = [ask, *(scene.held.log.entries[i] for i in sealing.membership_heads)]
    seal = hal.write(scene.id, sealing, parents=[ask], listed=listed)
    return ask, seal, hal.write(scene.id, answer(), parents=[seal])


def test_a_request_that_filled_the_conversation_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its seal was refused, and whoever had asked waited without a word."""
    scene, hal = Scene(Policy(entries_max=3)).begin(), Writer(7)
    monkeypatch.setattr(limits, "ANSWERS_RESERVE", 4)
    ask, *answered = _asked(scene, hal)
    more = scene.writer.write(scene.id, said("more"), parents=[ask])
    assert push(scene, scene.writer, more) == ["QUOTA_EXCEEDED"]
    assert push(scene, hal, *answered) == ["durable", "durable"]
    assert push(scene, hal, hal.write(scene.id, Join(), parents=[ask])) == ["QUOTA_EXCEEDED"]


def test_a_request_that_filled_the_conversation_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, hal = Scene(Policy(entries_max=3)).begin(), Writer(7)
    monkeypatch.setattr(limits, "ANSWERS_RESERVE", 4)
    ask, *answered = _asked(scene, hal)
    lanes = (Writer(1, epoch=number) for number in range(9, 12))
    cancels = [lane.write(scene.id, Cancel(), parents=[ask]) for lane in lanes]
    assert push(scene, scene.writer, *cancels) == ["durable", "durable", "QUOTA_EXCEEDED"]
    assert push(scene, hal, *answered) == ["durable", "durable"], "a part of the reserve is left"


def test_a_request_that_filled_the_bytes_of_a_conversation_is_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    hal = Writer(7)
    ask, *answered = _asked(scene, hal)
    monkeypatch.setattr(limits, "CONVERSATION_BYTES_MAX", scene.held.log.size_bytes - 1)
    more = scene.writer.write(scene.id, said("more"), parents=[ask])
    assert push(scene, scene.writer, more) == ["QUOTA_EXCEEDED"]
    assert push(scene, hal, *answered) == ["durable", "durable"]
    monkeypatch.setattr(limits, "ANSWERS_RESERVE_BYTES", 0)
    late = hal.write(scene.id, answer("No."), parents=[answered[0]])
    assert push(scene, hal, late) == ["QUOTA_EXCEEDED"]


def test_a_reader_may_resign_where_the_bytes_of_a_conversation_are_full(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.client.append(scene.grant(EVE.public, Role.READER))
    monkeypatch.setattr(limits, "CONVERSATION_BYTES_MAX", scene.held.log.size_bytes - 1)
    resigned = Writer(66, epoch=11).write(
        scene.id, Member(Revocation(EVE.public)), parents=[scene.genesis]
    )
    assert push(scene, EVE, resigned) == ["durable"]


def test_nobody_but_a_host_writes_answers_into_a_full_conversation() -> None:
    scene, hal = Scene(Policy(entries_max=3)).begin(), Writer(7)
    _, seal, _ = _asked(scene, hal)
    forged = scene.writer.write(scene.id, answer(), parents=[seal])
    assert push(scene, hal, seal) == ["durable"]
    assert push(scene, scene.writer, forged) == ["QUOTA_EXCEEDED"]


def test_a_seal_is_counted_however_much_follows_its_request() -> None:
    """Each one that is refused would look at all that was written behind it."""

    def work(count: int) -> int:
        scene, hal = Scene().begin(), Writer(7)
        scene.client.append(scene.grant(hal.public, Role.HOST))
        ask = scene.writer.write(scene.id, Request(hal.public, Sampling()), parents=[scene.genesis])
        scene.give(ask)
        for number in range(count):
            scene.give(scene.writer.write(scene.id, said(str(number)), parents=[ask]))
        sealing = seal_of(scene.held, ask.id, (ask.id,), None)
        listed = [ask, *(scene.held.log.entries[i] for i in sealing.membership_heads)]
        seal = hal.write(scene.id, sealing, parents=[ask], listed=listed)
        return calls(lambda: check_quotas(scene.held, seal, limits.ENTRIES_MAX))

    assert work(60) == work(6)
