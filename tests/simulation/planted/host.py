"""Bugs in a host's schedule."""

from unittest import mock

from model_host.scheduling import Decision, Schedule, schedule
from replica.conversation import next_seal
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import open_requests
from replica.ids import EntryId, PublicKey
from tests.simulation.planted import Patch


def runs_a_request_twice() -> Patch:
    note = Schedule._note

    def forget(self: Schedule, decision: Decision, owner: PublicKey) -> Decision:
        noted = note(self, decision, owner)
        self._running.clear()
        return noted

    return mock.patch.object(Schedule, "_note", forget)


def resumes_nothing() -> Patch:
    return mock.patch.object(schedule, "_resume", lambda held, request, runs: None)


def answers_again() -> Patch:
    def all_of(held: Conversation, host: PublicKey) -> list[EntryId]:
        asked = [i for i in held.order.requests if held.order.request(i).host == host]
        return sorted(asked, key=lambda i: held.log.entries[i].order_key)

    return mock.patch.object(schedule, "open_requests", all_of)


def begins_before_it_is_synchronized() -> Patch:
    take = Schedule.start_next

    def hasty(self: Schedule, held: object, *, is_synchronized: object, now_ms: int) -> object:
        return take(self, held, is_synchronized=lambda _: True, now_ms=now_ms)

    return mock.patch.object(Schedule, "start_next", hasty)


def begins_on_a_busy_branch() -> Patch:
    return mock.patch.object(schedule, "_is_busy", lambda node, runs: False)


def answers_for_another_host() -> Patch:
    def of_all(held: Conversation, host: PublicKey) -> list[EntryId]:
        hosts = {held.order.request(i).host for i in held.order.requests}
        found = [i for each in hosts for i in open_requests(held, each)]
        return sorted(found, key=lambda i: held.log.entries[i].order_key)

    return mock.patch.object(schedule, "open_requests", of_all)


def does_not_wait_for_the_answer_before() -> Patch:
    def sealable(held: Conversation, request: EntryId) -> object:
        with mock.patch.object(next_seal, "is_closed", lambda *arguments: True):
            return next_seal.sealable(held, request)

    return mock.patch.object(schedule, "sealable", sealable)
