"""The conversations that a host joins by invitation (spec/09-trust §5, DECISIONS D558)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from replica.conversation import Invitation, InviteInvalid, is_loopback, read_code
from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey, short
from replica.io import Replica, Store, await_grant, pinned_key, require_known_key
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

        It is the key that all codes state: a code takes no pinned key's place. Raises
        HubKeyUnknown where neither is known off loopback, PinDamaged, or StoreError.
        """
        keys = {one.hub_key for one in self.all}
        stated = keys.pop() if len(keys) == 1 else None
        if stated is None and is_loopback(address):
            return None
        async with await Store.open(path) as store:
            pinned = await pinned_key(store, address)
        require_known_key(pinned or stated, address)
        return stated if pinned is None else None


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
            log.warning(
                "invitation refused",
                conversation=short(joined),
                reason=error.reason,
                detail=error.detail,
                next_step=error.next_step,
            )
        else:
            log.info("invitation redeemed", conversation=short(joined))
