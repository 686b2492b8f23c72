"""The end of a fold that paused: what waited for it is done."""

from collections.abc import Callable

import pytest

from replica.ids import PublicKey
from replica.link.messages import Entries, Fault, Hello, Listing
from replica.log import meter
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.refusals import StoreFull
from syncd.fold_ends import end_fold
from syncd.hub import Hub
from syncd.links.connected import LinkId
from syncd.links.fan_out import HubEffects
from syncd.policy import Policy
from tests.support.scene import HUB_KEY
from tests.support.writers import Writer, said


@pytest.fixture
def _each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)


class Cut:
    """A hub on which Ada's grants, and 70 entries of Bob's, are; her revocation of Bob is due."""

    def __init__(self) -> None:
        ada, bob = Writer(1), Writer(2)
        genesis = ada.genesis()
        self.id = genesis.conversation
        grant = ada.write(self.id, Member(Grant(bob.public, Role.WRITER)), parents=[genesis])
        said_first = [bob.write(self.id, said("x"), parents=[genesis]) for _ in range(70)]
        self.revocation = ada.write(self.id, Member(Revocation(bob.public)), parents=[grant])
        gap = bob.write(self.id, said("gap"), parents=[genesis])
        self.late = bob.write(self.id, said("late"), parents=[gap])
        self.frame: tuple[Entry, ...] = (self.revocation,)
        self.hub = Hub(HUB_KEY, Policy())
        self.ada, self.bob = (self._link(key.public) for key in (ada, bob))
        self._receive(self.ada, genesis, grant, *said_first)

    def _link(self, key: PublicKey) -> LinkId:
        link_id = self.hub.connect(key, 0.0)
        self.hub.receive(link_id, Hello((1,)), 0.0)
        return link_id

    def _receive(self, link_id: LinkId, *entries: Entry) -> HubEffects:
        return self.hub.receive(link_id, Entries(self.id, entries), 0.0)

    def revoke(self, meanwhile: Callable[[], object]) -> HubEffects:
        """Let Ada revoke Bob; `meanwhile` is called in the first pause."""
        calls = iter([meanwhile])
        self.hub.shelf.folding.drive(lambda: True, lambda _held: next(calls, bool)())
        held = self.hub.shelf[self.id]
        effects = self._receive(self.ada, *self.frame)
        assert next(calls, None) is None, "there was a pause"
        self.ended = end_fold(self.hub, held)
        return effects

    def wait_for_more(self) -> None:
        """Let Bob leave an entry pending."""
        self._receive(self.bob, self.late)
        assert self.late.id in self.hub.shelf[self.id].log.pending


def test_what_a_link_left_pending_is_dropped_when_the_fold_ends() -> None:
    cut = Cut()
    cut.wait_for_more()
    cut.revoke(lambda: cut.hub.disconnect(cut.bob))
    assert not cut.hub.shelf[cut.id].log.pending


def test_a_charge_for_what_is_pending_stays_in_a_pause() -> None:
    cut = Cut()
    cut.wait_for_more()
    intake = cut.hub.links[cut.bob].intake
    before = intake.pending_bytes
    cut.revoke(intake.release)
    assert before > 0
    assert intake.pending_bytes == before


@pytest.mark.usefixtures("_each_entry")
def test_a_link_that_ends_while_its_own_entries_are_folded_leaves_nothing_pending() -> None:
    cut = Cut()
    cut.frame = (cut.revocation, cut.late)
    cut.revoke(lambda: cut.hub.disconnect(cut.ada))
    held = cut.hub.shelf[cut.id]
    assert cut.revocation.id in held.log.entries
    assert not held.log.pending


def test_a_conversation_that_the_disk_refuses_in_a_pause_leaves_memory_when_the_fold_ends() -> None:
    cut = Cut()
    fault = Fault.of(StoreFull())

    def refuse() -> None:
        effects = cut.hub.disk_refused(frozenset({cut.id}), fault)
        assert {link_id for link_id, _ in effects.send} == set()
        assert cut.hub.shelf.apart.is_unread(cut.id), "nobody gets what was queued"

    effects = cut.revoke(refuse)
    assert [entry.id for entry in effects.persist] == [cut.revocation.id]
    assert cut.id not in cut.hub.shelf
    assert cut.hub.shelf.apart.is_unread(cut.id)
    assert not cut.hub.shelf.folding.lost


def test_a_list_that_passed_over_a_conversation_gets_it_when_the_fold_ends() -> None:
    cut = Cut()
    follower = cut.hub.connect(Writer(1).public, 0.0)
    effects = cut.revoke(lambda: cut.hub.receive(follower, Hello((1,), follow=True), 0.0))
    listed = [
        item.conversation
        for link_id, frame in (*effects.send, *cut.ended.send)
        if link_id == follower and isinstance(frame.message, Listing)
        for item in frame.message.items
    ]
    assert listed == [cut.id]
