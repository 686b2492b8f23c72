"""One-line bugs put into the core on purpose: the oracle must find each of them.

A simulation that can't fail proves nothing; this is its own test.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import count, islice
from random import Random
from unittest import mock

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.drafts import DraftStream
from replica.conversation.epochs import Epochs
from replica.ids import ConversationId, EntryId, tagged_sha256
from replica.link import comparison as reconcile
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.credit import FlowControl
from replica.link.effects import EffectsBuilder
from replica.link.intake import Intake
from replica.log import log
from replica.log.damage import NOTHING_LOST, Damage, Lost
from replica.log.entry import Entry
from replica.log.log import Log
from replica.log.members import Membership
from replica.log.pending import PendingEntries
from syncd.hub import Hub, HubEffects
from tests.simulation.hub_node import HubNode
from tests.simulation.mix import Mix, draw
from tests.simulation.world import run_seed

SEEDS_MAX = 300
"""Seeds tried per bug, of those whose mix may show it."""

Bug = Callable[[], AbstractContextManager[object]]


def sends_before_it_persists() -> AbstractContextManager[object]:
    submit = HubNode.submit

    def swapped(self: HubNode, persist: Iterable[object], about: set, steps: list) -> None:
        submit(self, (), about, steps)
        self.later(0.5, lambda: submit(self, persist, about, []))

    return mock.patch.object(HubNode, "submit", swapped)


def persists_three_entries_at_most() -> AbstractContextManager[object]:
    build = EffectsBuilder.build

    def short(self: EffectsBuilder, wake_at: float | None) -> object:
        del self.persist[3:]
        return build(self, wake_at)

    return mock.patch.object(EffectsBuilder, "build", short)


def never_checks_again() -> AbstractContextManager[object]:
    def ignore(self: ClientSide, channel: Channel, out: object, now: float) -> None:
        channel.recheck_at = None

    return mock.patch.object(ClientSide, "recheck", ignore)


def sends_nothing_twice() -> AbstractContextManager[object]:
    def recheck(self: ClientSide, channel: Channel, out: EffectsBuilder, now: float) -> None:
        self.send_open(channel, out, now, with_heads=True)

    return mock.patch.object(ClientSide, "recheck", recheck)


def never_verifies_a_quiet_conversation() -> AbstractContextManager[object]:
    return mock.patch.object(ClientSide, "verify", lambda self, channels, out, now: None)


def never_grants_credit() -> AbstractContextManager[object]:
    return mock.patch.multiple(
        FlowControl, catch_up=lambda self, sent: None, grant=lambda self: None
    )


def leaves_the_first_of_a_suffix_out() -> AbstractContextManager[object]:
    suffix = reconcile.suffix
    return mock.patch.object(reconcile, "suffix", lambda log, held: suffix(log, held)[1:])


def takes_a_guess_for_an_ack() -> AbstractContextManager[object]:
    mark = Channel.mark_acked

    def guess(self: Channel, conversation: Conversation, ids: Iterable[bytes]) -> list:
        return mark(self, conversation, [*ids, *self.unacked])

    return mock.patch.object(Channel, "mark_acked", guess)


def sees_no_lane_diverge() -> AbstractContextManager[object]:
    return mock.patch.object(Log, "at", lambda self, lane, seq: ())


def digests_places_without_ids() -> AbstractContextManager[object]:
    def version_vector(heads: Iterable) -> bytes:
        return tagged_sha256(b"vector", repr([(h.lane, h.seq) for h in heads]).encode())

    return mock.patch.object(log, "digest_of", version_vector)


def lets_nothing_out_of_pending() -> AbstractContextManager[object]:
    complete = PendingEntries.mark_complete

    def tell_nobody(self: PendingEntries, entry_id: EntryId) -> list[EntryId]:
        complete(self, entry_id)
        return []

    return mock.patch.multiple(
        PendingEntries, mark_complete=tell_nobody, complete_by=lambda self, authors: []
    )


def gives_up_a_conversation_the_hub_lost() -> AbstractContextManager[object]:
    def deny(self: ClientSide, channel: Channel, fault: object, out: object, now: float) -> None:
        self._deny(channel, fault, out, now)

    return mock.patch.object(ClientSide, "_seed", deny)


def takes_drafts_with_gaps() -> AbstractContextManager[object]:
    def receive(self: DraftStream, draft: object) -> bool:
        self.frames.append(draft)
        return True

    return mock.patch.object(DraftStream, "receive", receive)


def counts_what_lies_outside_a_cut() -> AbstractContextManager[object]:
    return mock.patch.object(Membership, "satisfies_cuts", lambda self, entry: True)


def starts_with_an_empty_shelf() -> AbstractContextManager[object]:
    return mock.patch.object(Hub, "load", lambda self, *stored: None)


def writes_on_in_the_epoch_of_a_restored_disk() -> AbstractContextManager[object]:
    epoch = Epochs.epoch

    def careless(self: Epochs, held: Conversation, fresh: int) -> int:
        self.confirm(held.id)
        return epoch(self, held, fresh)

    return mock.patch.object(Epochs, "epoch", careless)


def skips_the_third_entry_of_a_lane() -> AbstractContextManager[object]:
    admit = Intake._admit

    def forgetful(self: Intake, held: object, entry: object, taken: object, out: object) -> None:
        if entry.header.seq != 2:
            admit(self, held, entry, taken, out)

    return mock.patch.object(Intake, "_admit", forgetful)


def forgets_what_the_disk_lost() -> AbstractContextManager[object]:
    restore = Conversation.restore

    def forgetful(
        conversation: ConversationId, entries: Iterable[Entry], _lost: Lost = NOTHING_LOST
    ) -> Conversation:
        return restore(conversation, entries)

    return mock.patch.object(Conversation, "restore", staticmethod(forgetful))


def stores_again_what_waited_in_the_store() -> AbstractContextManager[object]:
    receive = Damage.receive

    def tell_nothing(self: Damage, admitted: Iterable[Entry]) -> frozenset[EntryId]:
        receive(self, admitted)
        return frozenset()

    return mock.patch.object(Damage, "receive", tell_nothing)


def disk_refused_forgets_nothing() -> AbstractContextManager[object]:
    return mock.patch.object(Hub, "disk_refused", lambda self, lost, fault: HubEffects())


def lets_go_of_what_is_not_written_yet() -> AbstractContextManager[object]:
    let_go = Hub.let_go
    return mock.patch.object(Hub, "let_go", lambda self, busy: let_go(self, frozenset()))


BUGS: list[Bug] = [
    sends_before_it_persists,
    persists_three_entries_at_most,
    never_checks_again,
    sends_nothing_twice,
    never_verifies_a_quiet_conversation,
    never_grants_credit,
    leaves_the_first_of_a_suffix_out,
    takes_a_guess_for_an_ack,
    sees_no_lane_diverge,
    digests_places_without_ids,
    lets_nothing_out_of_pending,
    gives_up_a_conversation_the_hub_lost,
    takes_drafts_with_gaps,
    counts_what_lies_outside_a_cut,
    starts_with_an_empty_shelf,
    writes_on_in_the_epoch_of_a_restored_disk,
    skips_the_third_entry_of_a_lane,
    forgets_what_the_disk_lost,
    stores_again_what_waited_in_the_store,
    disk_refused_forgets_nothing,
    lets_go_of_what_is_not_written_yet,
]


SHOWN_BY: dict[Bug, Callable[[Mix], bool]] = {
    sees_no_lane_diverge: lambda mix: mix.keep_epoch,
    writes_on_in_the_epoch_of_a_restored_disk: lambda mix: mix.rollback and not mix.may_fork,
    counts_what_lies_outside_a_cut: lambda mix: bool(mix.revoke),
    forgets_what_the_disk_lost: lambda mix: mix.has_damage,
    stores_again_what_waited_in_the_store: lambda mix: mix.has_damage,
    disk_refused_forgets_nothing: lambda mix: bool(mix.refuse),
    lets_go_of_what_is_not_written_yet: lambda mix: mix.conversations > mix.hub_memory,
}
"""Where only some mixes can show the bug, the others are not worth their time."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_oracle_finds(bug: Bug):
    may_show = SHOWN_BY.get(bug, lambda mix: True)
    seeds = (seed for seed in count() if may_show(draw(Random(seed))))
    with bug():
        assert any(run_seed(seed).problem for seed in islice(seeds, SEEDS_MAX))
