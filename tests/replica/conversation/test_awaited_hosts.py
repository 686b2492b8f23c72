"""The hosts that the requests without an answer name (spec/04-link §4, LINK-95)."""

import pytest

from replica.conversation.awaited_hosts import hosts_awaited
from replica.log.body import Request, Role, Sampling
from replica.log.entry import Entry
from replica.order import unanswered
from tests.replica.order.turn import Turn
from tests.support.writers import Writer


class Asking(Turn):
    """A turn behind which two hosts can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.ida = Writer(3)
        self.grant(self.ida, Role.HOST, self.genesis)

    def ask_of(self, host: Writer) -> Entry:
        body = Request(host.public, Sampling())
        last = (self.answer,)
        return self.admit(self.ada.write(self.held.id, body, parents=last, basis=self.seal))


def test_who_has_answered_is_not_awaited() -> None:
    assert set(hosts_awaited(Asking().held)) == set()


def test_each_host_that_is_asked_is_awaited() -> None:
    turn = Asking()
    for host in (turn.hal, turn.ida, turn.ida):
        turn.ask_of(host)
    assert hosts_awaited(turn.held) == {turn.ida.public, turn.hal.public}


def test_the_latest_requests_alone_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "LATEST", 2)
    turn = Asking()
    for host in (turn.hal, turn.ida, turn.ida):
        turn.ask_of(host)
    assert turn.hal.public not in hosts_awaited(turn.held)
