"""The conversations that a host joins by invitation (spec/09-trust §5, DECISIONS D558)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from replica.conversation import Invitation, read_code
from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey, key_from_hex, short
from replica.io import Replica, await_grant
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Invitations:
    """The invitations of a host's settings, all for one hub."""

    all: tuple[Invitation, ...]
    hub_key: PublicKey | None
    """The key that the hub must prove; None for any, or the one pinned."""

    @classmethod
    def read(cls, codes: Sequence[str], hub_key: str) -> "Invitations":
        """Read the codes of a host for the hub of this key, in hex; any hub if it is empty.

        Raises InviteInvalid, and ArgumentInvalid for those of persons, or of other hubs.
        """
        invitations = tuple(read_code(code, of_host=True) for code in codes)
        stated = {key_from_hex(hub_key)} if hub_key else set()
        stated |= {one.hub_key for one in invitations}
        if len(stated) > 1:
            raise ArgumentInvalid("the codes are for another hub than the one to serve")
        return cls(invitations, next(iter(stated), None))

    @property
    def conversations(self) -> frozenset[ConversationId]:
        """The conversations that the host joins."""
        return frozenset(one.conversation for one in self.all)


class Invited:
    """Leaves the proofs of a host at its hub, and logs what becomes of them."""

    def __init__(self, replica: Replica, invitations: Invitations) -> None:
        """Use the replica of the host."""
        self._replica = replica
        self._invitations = invitations

    async def run(self) -> None:
        """Wait for each grant, or for its refusal."""
        await asyncio.gather(*map(self._join, self._invitations.all))

    async def _join(self, invitation: Invitation) -> None:
        def report(error: AntiphonError) -> None:
            log.info("invitation waits", conversation=short(joined), reason=error.reason)

        joined = invitation.conversation

        try:
            await await_grant(self._replica, invitation, report=report)
        except AntiphonError as error:
            detail = f"{error.reason}: {error.detail}"
            log.warning("invitation refused", conversation=short(joined), detail=detail)
        else:
            log.info("joined by invitation", conversation=short(joined))
