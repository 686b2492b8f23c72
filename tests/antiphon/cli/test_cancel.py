"""Who may cancel what a place waits for, before anything is written."""

from pathlib import Path

import pytest

from antiphon.cli.commands.cancel import cancel_awaited
from antiphon.cli.common.errors import CancelForbidden
from replica.conversation import KeyRemoved, newest_place
from replica.io import Replica
from replica.log.body import Member, Revocation, Role
from tests.replica.order.turn import Turn
from tests.support.writers import Writer


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
