"""Who may cancel what a place waits for, before anything is written."""

from pathlib import Path

import pytest

from antiphon.cli.commands.cancel import cancel_awaited, cancel_request
from antiphon.cli.common.errors import CancelForbidden, NothingAwaited
from replica.conversation import KeyRemoved, newest_place
from replica.io import Replica
from replica.log.body import Cancel, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Conflict
from replica.refusals import ArgumentInvalid
from tests.replica.order.turn import Turn
from tests.support.stories import cut_at
from tests.support.writers import Writer, said


@pytest.mark.parametrize("role", [Role.WRITER, Role.OWNER])
async def test_a_removed_key_cancels_nothing(tmp_path: Path, role: Role) -> None:
    turn, bob = Turn(), Writer(5)
    granted = turn.grant(bob, role, turn.genesis)
    turn.request(turn.answer, basis=turn.seal)
    place = newest_place(turn.held)
    async with Replica.open(tmp_path / "log.db", bob.key) as replica:
        if role is Role.WRITER:
            with pytest.raises(CancelForbidden, match="only its author"):
                await cancel_awaited(replica, turn.held, place)
        removal = Member(Revocation(bob.public, ()))
        turn.admit(turn.ada.write(turn.held.id, removal, parents=[granted]))
        with pytest.raises(KeyRemoved):
            await cancel_awaited(replica, turn.held, place)


async def test_a_request_of_any_branch_is_cancelled_by_its_id(tmp_path: Path) -> None:
    turn, bob = Turn(), Writer(5)
    turn.grant(bob, Role.WRITER, turn.genesis)
    body = Request(turn.hal.public, Sampling())
    more = {"parents": [turn.answer], "basis": turn.seal, "conflict": Conflict.FORK}
    fork = turn.admit(turn.ada.write(turn.held.id, body, **more))
    async with Replica.open(tmp_path / "log.db", bob.key) as replica:
        for entry, error in (
            (turn.answer, ArgumentInvalid),
            (turn.ask, NothingAwaited),
            (fork, CancelForbidden),
        ):
            with pytest.raises(error):
                await cancel_request(replica, turn.held, entry.id)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[fork]))
    async with Replica.open(tmp_path / "log.db", bob.key) as replica:
        with pytest.raises(NothingAwaited, match="cancelled already"):
            await cancel_request(replica, turn.held, fork.id)


async def test_a_request_with_a_void_answer_is_cancelled_by_its_id(tmp_path: Path) -> None:
    """It had "its answer already", while its branch waited."""
    turn, bob = Turn(), Writer(5)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    turn.admit(bob.write(turn.held.id, said("more"), parents=[turn.answer]))
    removal = Member(Revocation(turn.hal.public, (cut_at(turn.seal),)))
    more = {"parents": [granted], "listed": [turn.seal]}
    turn.admit(turn.ada.write(turn.held.id, removal, **more))
    assert turn.held.order.generation_of(turn.ask.id) == turn.answer.id
    async with Replica.open(tmp_path / "log.db", bob.key) as replica:
        with pytest.raises(CancelForbidden, match="only its author"):
            await cancel_request(replica, turn.held, turn.ask.id)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[turn.ask]))
    async with Replica.open(tmp_path / "log.db", bob.key) as replica:
        with pytest.raises(NothingAwaited):
            await cancel_request(replica, turn.held, turn.ask.id)
