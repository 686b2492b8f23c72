"""A hub bounds the conversations that a key brings to it (LIM-11)."""

from functools import partial

import pytest

from replica import limits
from replica.link.messages import Entries, Fault, Hello
from replica.log.body import Grant, Member, Role
from replica.log.damage import Lost
from replica.refusals import QuotaExceeded
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene, index
from tests.support.writers import Writer, said


def _hub(most: int) -> Hub:
    return Hub(HUB_KEY, Policy(conversations_per_creator_max=most))


def _small(most: int) -> Hub:
    return Hub(HUB_KEY, Policy(conversations_max=most))


def _genesis(number: int, key: int = 1) -> Entries:
    genesis = Writer(key, epoch=number + 1).genesis()
    return Entries(genesis.conversation, (genesis,))


def _reasons(hub: Hub, message: Entries, key: int = 1) -> list[str | None]:
    _, found = hub.begin_push(Writer(key).public).whole(message, 0.0)
    return [fault.reason if fault is not None else None for fault in found.values()]


def test_a_key_brings_so_many_conversations_and_no_more() -> None:
    hub = _hub(2)
    for number in range(2):
        assert _reasons(hub, _genesis(number)) == [None]
        assert _reasons(hub, _genesis(number)) == [None], "the same again"
    assert _reasons(hub, _genesis(2)) == [QuotaExceeded.reason]
    assert _reasons(hub, _genesis(1)) == [None], "of its own it sends what it likes"
    assert _reasons(hub, _genesis(3, key=2), key=2) == [None]


def test_the_bound_holds_over_a_link_and_after_a_deletion() -> None:
    hub = _hub(1)
    link_id = hub.connect(Writer(1).public, 0.0)
    hub.receive(link_id, Hello((1,)), 0.0)
    hub.receive(link_id, _genesis(0), 0.0)
    hub.delete(_genesis(0).conversation)
    effects = hub.receive(link_id, _genesis(1), 0.0)
    faults = [f.message.reason for _, f in effects.send if isinstance(f.message, Fault)]
    assert faults == [QuotaExceeded.reason]


def test_stored_conversations_count_for_their_creators() -> None:
    hub = _hub(2)
    for number, put in enumerate((hub.load, partial(index, hub))):
        message = _genesis(number)
        put(message.conversation, message.entries)
    assert _reasons(hub, _genesis(2)) == [QuotaExceeded.reason]


def test_all_keys_together_bring_so_many_and_those_with_few_are_refused_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FEW_CONVERSATIONS", 2)
    hub = _small(24)  # the last three are for keys with less than two
    for number in range(20):
        assert _reasons(hub, _genesis(number)) == [None]
    assert _reasons(hub, _genesis(0, key=2), key=2) == [None]
    assert _reasons(hub, _genesis(20)) == [QuotaExceeded.reason]
    assert _reasons(hub, _genesis(0)) == [None], "of its own it sends what it likes"
    for number in range(2):
        assert _reasons(hub, _genesis(number, key=3), key=3) == [None]
    assert _reasons(hub, _genesis(2, key=3), key=3) == [QuotaExceeded.reason]
    assert _reasons(hub, _genesis(0, key=4), key=4) == [None]
    assert _reasons(hub, _genesis(0, key=5), key=5) == [QuotaExceeded.reason], "none is left"


def test_a_full_hub_takes_what_a_blocked_conversation_lacks() -> None:
    hub, writer = _small(1), Writer(1)
    genesis = writer.genesis()
    hub.load(genesis.conversation, [], Lost(membership=frozenset({genesis.id})))
    assert hub.shelf[genesis.conversation].is_blocked
    assert _reasons(hub, Entries(genesis.conversation, (genesis,))) == [None]
    assert _reasons(hub, _genesis(1)) == [QuotaExceeded.reason]


def test_what_is_deleted_or_of_nobody_known_counts_for_all() -> None:
    hub = _small(2)
    assert _reasons(hub, _genesis(0)) == [None]
    hub.delete(_genesis(0).conversation)
    hub.index(_genesis(1).conversation, None, None)
    assert _reasons(hub, _genesis(2, key=2), key=2) == [QuotaExceeded.reason]


def test_a_key_with_too_many_learns_nothing_of_others() -> None:
    hub = _hub(1)
    assert _reasons(hub, _genesis(0)) == [None]
    theirs = _genesis(5, key=2)
    known, unknown = theirs, _genesis(6, key=2)
    assert _reasons(hub, known, key=2) == [None]
    assert _reasons(hub, known) == _reasons(hub, unknown) == [QuotaExceeded.reason]


def test_the_bytes_of_a_conversation_are_bounded_and_owners_may_still_revoke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene().begin()
    monkeypatch.setattr(limits, "CONVERSATION_BYTES_MAX", scene.held.log.size_bytes - 1)
    lane = Writer(1, epoch=9)
    message = lane.write(scene.id, said("more"), parents=[scene.genesis])
    grant = lane.write(
        scene.id, Member(Grant(Writer(2).public, Role.READER)), parents=[scene.genesis]
    )
    _, found = scene.hub.begin_push(Writer(1).public).whole(
        Entries(scene.id, (grant, message)), 0.0
    )
    fault = found[message.id]
    assert found[grant.id] is None
    assert fault is not None
    assert fault.reason == QuotaExceeded.reason
