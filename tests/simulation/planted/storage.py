"""Bugs in storage: commits, restarts, refusals, damage, and acks."""

from collections.abc import Iterable
from unittest import mock

from replica.commits import Commits, Refused
from replica.conversation.conversation import Conversation
from replica.conversation.epochs import Epochs
from replica.core import ReplicaCore, ReplicaEffects
from replica.core.follows import Follows
from replica.ids import ConversationId, EntryId
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.exchange import Exchange
from replica.link.intake import Intake
from replica.log.damage import NOTHING_LOST, Damage, Lost
from replica.log.entry import Entry
from syncd.hub import Hub, HubEffects
from tests.simulation.hub_node import HubNode
from tests.simulation.planted import Patch


def sends_before_it_persists() -> Patch:
    submit = HubNode.submit

    def swapped(self: HubNode, persist: Iterable[object], about: set, steps: list) -> None:
        submit(self, (), about, steps)
        self.later(0.5, lambda: submit(self, persist, about, []))

    return mock.patch.object(HubNode, "submit", swapped)


def persists_three_entries_at_most() -> Patch:
    build = EffectsBuilder.build

    def short(self: EffectsBuilder, wake_at: float | None) -> object:
        del self.persist[3:]
        return build(self, wake_at)

    return mock.patch.object(EffectsBuilder, "build", short)


def starts_with_an_empty_shelf() -> Patch:
    return mock.patch.object(Hub, "load", lambda self, *stored: HubEffects())


def writes_on_in_the_epoch_of_a_restored_disk() -> Patch:
    epoch = Epochs.epoch

    def careless(self: Epochs, held: Conversation, fresh: int) -> int:
        self.confirm(held.id)
        return epoch(self, held, fresh)

    return mock.patch.object(Epochs, "epoch", careless)


def forgets_the_losses_of_the_disk() -> Patch:
    restore = Conversation.restore

    def forgetful(
        conversation: ConversationId, entries: Iterable[Entry], _lost: Lost = NOTHING_LOST
    ) -> Conversation:
        return restore(conversation, entries)

    return mock.patch.object(Conversation, "restore", staticmethod(forgetful))


def stores_pending_entries_of_the_store_again() -> Patch:
    receive = Damage.receive

    def report_none(self: Damage, admitted: Iterable[Entry]) -> frozenset[EntryId]:
        receive(self, admitted)
        return frozenset()

    return mock.patch.object(Damage, "receive", report_none)


def skips_the_third_entry_of_a_lane() -> Patch:
    admit = Intake._admit

    def forgetful(self: Intake, held: object, entry: object, taken: object, out: object) -> None:
        if entry.header.seq != 2:
            admit(self, held, entry, taken, out)

    return mock.patch.object(Intake, "_admit", forgetful)


def performs_in_reverse() -> Patch:
    complete = Commits.complete
    return mock.patch.object(Commits, "complete", lambda self: complete(self)[::-1])


def forgets_the_work_queued_behind_a_refused_commit() -> Patch:
    def refuse(self: Commits) -> Refused:
        work, self._committing = self._committing, ()
        return Refused({entry.conversation for one in work for entry in one.persist}, work)

    return mock.patch.object(Commits, "refuse", refuse)


def performs_refused_commits() -> Patch:
    return mock.patch.object(Commits, "refuse", lambda self: Refused(frozenset(), self.abandon()))


def keeps_refused_entries_in_memory() -> Patch:
    return mock.patch.object(ReplicaCore, "_drop", lambda self, conversation: None)


def never_reopens_after_a_refused_commit() -> Patch:
    return mock.patch.object(Follows, "reopen_later", lambda self, conversation, now: None)


def goes_on_with_a_link_that_is_gone() -> Patch:
    def ignore(self: ReplicaCore, now: float, fault: object = None) -> ReplicaEffects:
        return ReplicaEffects()

    return mock.patch.object(ReplicaCore, "disconnected", ignore)


def counts_its_own_entry_as_acked() -> Patch:
    append = ReplicaCore.append

    def hasty(self: ReplicaCore, entry: Entry, now: float, **more: object) -> ReplicaEffects:
        effects = append(self, entry, now, **more)
        self.holdings.acks.note(entry.conversation, [entry.position])
        return effects

    return mock.patch.object(ReplicaCore, "append", hasty)


def counts_released_entries_as_acked() -> Patch:
    return mock.patch.object(Intake, "freed_by", lambda self, message, ids: frozenset())


def sends_of_a_blocked_conversation() -> Patch:
    queue = Exchange._queue

    def careless(self: Exchange, channel: Channel, held: Conversation, entries: list) -> None:
        with mock.patch.object(Conversation, "is_blocked", False):
            queue(self, channel, held, entries)

    return mock.patch.object(Exchange, "_queue", careless)
