"""The conversations that a host joins by invitation (spec/09-trust §5, DECISIONS D558)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from replica.conversation import Invitation, InviteInvalid, read_code
from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey, short
from replica.io import Replica, Store, await_grant, pinned_key
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Invitations:
    """The invitations of a host's settings."""

    all: tuple[Invitation, ...]

    @classmethod
    def read(cls, codes: Sequence[str]) -> "Invitations":
        """Read the codes. Raises InviteInvalid, and ArgumentInvalid for one for a person."""
        found = []
        for number, code in enumerate(codes, 1):
            try:
                found.append(read_code(code, of_host=True))
            except (InviteInvalid, ArgumentInvalid) as error:
                words = f"invitation {number} of {len(codes)}: {error.detail}"
                raise type(error)(words) from error
        return cls(tuple(found))

    @property
    def conversations(self) -> frozenset[ConversationId]:
        """The conversations that the host joins."""
        return frozenset(one.conversation for one in self.all)

    async def hub_key(self, path: Path, address: str) -> PublicKey | None:
        """Return the key that the hub must prove at the first contact; None for the pinned one.

        It is the key that all codes state: a code takes no pinned key's place. Raises StoreError.
        """
        stated = {one.hub_key for one in self.all}
        if len(stated) != 1:
            return None
        async with await Store.open(path) as store:
            is_pinned = await pinned_key(store, address) is not None
        return None if is_pinned else stated.pop()


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
            log.info("invitation redeemed", conversation=short(joined))
