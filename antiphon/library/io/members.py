"""The members of a conversation: grants, removals, invitations."""

from contextlib import suppress

from antiphon.library.given import check_id, check_text
from antiphon.library.io.handle import SYNC_S, Handle
from replica.conversation import encode_invitation
from replica.ids import PublicKey
from replica.io import begin, invite, issued_invitations, now_ms, require_link, revoke_invitation
from replica.log import Grant, Role
from replica.refusals import ArgumentInvalid


class Members(Handle):
    """The part of a conversation that changes who is a member."""

    async def grant(self, key: PublicKey, role: str = "writer") -> None:
        """Give a key a role: reader, writer, owner or host.

        Raises ArgumentInvalid for an invalid key or role, NotAllowed unless this key is an
        owner, and KeyRemoved for a key that was removed: removal is permanent.

        >>> async with aio.open("~/bob", hub="127.0.0.1:7411") as bob:
        ...     await trip.grant(bob.key, "reader")
        ...     shared = await bob.get(trip.id)
        >>> shared.id == trip.id
        True
        """
        check_id(key, "the key")
        await self.check_taken()
        await begin.grant(self.replica, self.id, Grant(key, _role(role, _GRANTED)))

    async def remove(self, key: PublicKey, *, leave_ownerless: bool = False) -> None:
        """Remove a member permanently; what it has written stays.

        Raises ArgumentInvalid for a key that is no member, or was removed before, and NotAllowed.
        Only an owner that ranks above a key can remove it. The key that began the conversation
        ranks first, any other one step below the highest owner that granted it its role: a bot
        that is to remove members invites them itself. Any key may remove itself, which means to
        leave. The last owner can leave only with `leave_ownerless`, because nobody could invite or
        remove members afterwards; otherwise this raises LastOwner.

        >>> async with aio.open("~/bob") as bob:
        ...     await trip.grant(bob.key)
        ...     await trip.remove(bob.key)
        """
        check_id(key, "the key")
        await self.check_taken()
        await begin.remove(self.replica, self.id, key, leave_ownerless=leave_ownerless)

    async def invite(self, name: str, *, role: str = "writer", address: str | None = None) -> str:
        """Return a code that lets one person join within 24 hours, with `antiphon.join(code)`.

        `role` is writer, reader or host; `name` is this replica's own name for the newcomer.
        Give them the code in private: the first person to use it can join. `address` is the
        address (host:port) at which they reach the hub, if it differs from the one used here, for
        example that of `antiphon up --listen`. This replica grants the role automatically while it
        is open here or in a command. Raises ArgumentInvalid, HubUnreachable, NotAllowed unless
        this key is an owner, and QuotaExceeded if 64 codes of one day are open or used:
        `uninvite` closes open ones.

        >>> code = await trip.invite("bob", role="reader")
        >>> async with aio.join(code, "~/bob") as shared:
        ...     shared.id == trip.id
        True
        """
        invited = _role(role, _INVITED)
        check_text(name, "name")
        if address is not None:
            check_text(address, "address")
        await require_link(self.replica, SYNC_S)
        await self.replica.wait_synced(self.id, SYNC_S)
        await self.check_taken()
        issued = await invite(
            self.replica, self.id, name, role=invited, address=address, timeout_s=SYNC_S
        )
        return encode_invitation(issued.invitation)

    async def uninvite(self, name: str) -> int:
        """Revoke the unused codes that were made for `name` in this conversation.

        Returns how many there were. A person who tries a revoked code waits until it expires, or
        gets INVITE_REVOKED if the hub could not be asked now. A person who has joined stays a
        member until you call `remove`.

        >>> code = await trip.invite("bob")
        >>> await trip.uninvite("bob")
        1
        """
        check_text(name, "name")
        replica, now, revoked = self.replica, now_ms(), 0
        for one in await issued_invitations(replica.store):
            is_meant = one.name == name and one.invitation.conversation == self.id
            if is_meant and one.is_waiting(now):
                with suppress(ArgumentInvalid):  # somebody has joined with it meanwhile
                    await revoke_invitation(replica, one, SYNC_S)
                    revoked += 1
        return revoked


_GRANTED = ("reader", "writer", "owner", "host")
_INVITED = ("reader", "writer", "host")


def _role(name: str, known: tuple[str, ...]) -> Role:
    if check_text(name, "role").lower() not in known:
        raise ArgumentInvalid(f"'{name}' is none of {', '.join(known)}")
    return Role[name.upper()]
