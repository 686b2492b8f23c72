"""`antiphon invite`, `invitations` and `join`: share a conversation by a code."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from antiphon.cli.commands.clone import fetch
from antiphon.cli.commands.new import ROLES
from antiphon.cli.common import (
    ConversationArgument,
    InvitationUnknown,
    InviteHubAway,
    InviteHubChanged,
    Session,
    command,
    next_command,
)
from antiphon.cli.views import counted, plain_table
from replica.conversation import (
    Invitation,
    Issued,
    JoinVerdict,
    encode_invitation,
    is_loopback,
    read_code,
)
from replica.ids import short
from replica.io import (
    Joined,
    Redeeming,
    Replica,
    await_grant,
    check_folder,
    check_usable,
    current_invitation,
    invite,
    issued_invitations,
    now_ms,
    require_link,
    revoke_invitation,
    save_hub,
)
from replica.log import Role
from replica.refusals import ArgumentInvalid, HubUnreachable, PeerIdentityChanged

POLL_S = 0.5
_PIPED_MAX = 16 * 1024
"""Characters that are read of what is piped in; a code has a few hundred."""
RoleOption = Annotated[
    str,
    typer.Option(
        metavar="writer|reader|host",
        help="Role of the newcomer: may write, may only read, or is a model host.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, body in (("invite", invite_), ("invitations", invitations), ("join", join)):
        command(app, name, rich_help_panel="Share")(body)


async def invite_(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for the newcomer.")],
    conversation: ConversationArgument = None,
    *,
    role: RoleOption = "writer",
    at: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The hub's address for them, if not yours."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until they have joined.")] = False,
) -> int:
    """Print a code with which one person can join a conversation, within 24 hours.

    Give it to them in private: the first person to use it can join. Your replica grants the
    role while `invite --wait` or `chat` runs, or when your next `status`, `log` or `send`
    links to the hub.
    """
    if role.lower() not in ROLES:
        raise ArgumentInvalid(f"--role is writer, reader or host, not '{role}'")
    async with session.replica(redeeming=False) as replica:
        chosen = await session.choose(replica.store, conversation)
        await require_link(replica, session.settings.sync_timeout_s)
        await session.sync(replica, chosen)
        issued = await invite(replica, chosen, name, role=ROLES[role.lower()], address=at)
        _show_code(session, issued)
        return await _wait_until_joined(session, replica, issued) if wait else 0


def _show_code(session: Session, issued: Issued) -> None:
    invitation, code = issued.invitation, encode_invitation(issued.invitation)
    if session.out.as_json:
        session.out.emit(
            {
                "code": code, "name": issued.name, "role": invitation.role.name.lower(),
                "conversation": invitation.conversation.hex(), "hub": invitation.hub_address,
                "hub_key": invitation.hub_key.hex(), "expires_ms": invitation.expire_time_ms,
            }
        )  # fmt: skip
        return
    session.out.show(code)
    session.out.note(
        Text(
            f"for {issued.name}, as {invitation.role.name.lower()}, once, within 24 hours"
            f" · hub {invitation.hub_address}, key {short(invitation.hub_key)}",
            style="dim",
        )
    )
    if invitation.role is Role.HOST:
        session.out.note(
            f"its operator starts the host with --hub {invitation.hub_address} --invitation CODE"
        )
    if is_loopback(invitation.hub_address):
        session.out.note(
            f"{invitation.hub_address} is this machine alone. For another one give --at HOST:PORT,"
            " with the address of `antiphon up --listen`, or let them open a tunnel:"
            f" ssh -L {invitation.hub_address.rpartition(':')[2]}:{invitation.hub_address} MACHINE"
        )


async def _wait_until_joined(session: Session, replica: Replica, issued: Issued) -> int:
    reported: list[Joined] = []

    def report(joined: Joined) -> None:
        reported.append(joined)
        session.say_joined(joined)

    redeeming = Redeeming(replica, report)
    redeeming.start()
    session.out.note(Text("waiting; Ctrl-C leaves, and the code stays valid", style="dim"))
    try:
        while _state(issued) == "open":
            await asyncio.sleep(POLL_S)
            issued = await current_invitation(replica.store, issued)
    finally:
        await redeeming.stop()
    key = issued.claimed_by
    if key is None:
        words = f"the invitation of {issued.name} is {_state(issued)}; nobody has joined with it"
        session.out.note(f"{words}. next: {next_command(session.settings, 'invite', 'NAME')}")
        return 1
    if all(one.key != key for one in reported):  # another process on this store answered
        session.say_joined(Joined(issued, key, JoinVerdict.GRANTED))
    return 0


async def invitations(
    session: Session,
    *,
    revoke: Annotated[
        str | None, typer.Option(metavar="NAME", help="Revoke the unused codes for this name.")
    ] = None,
) -> int:
    """List the invitations made here, or revoke some."""
    if revoke is None:
        async with session.reading() as store:
            records = await issued_invitations(store)
        table = plain_table("name", "role", "state", "conversation", "key", flexible=("name",))
        for one in records:
            _add_issued(session, table, one)
        if not records:
            step = next_command(session.settings, "invite", "NAME")
            session.out.note(f"no invitation is open; next: {step}")
        elif not session.out.as_json:
            session.out.data.print(table)
        return 0
    async with session.replica(redeeming=False) as replica:
        await replica.wait_for(lambda: replica.hub.is_tried, session.settings.sync_timeout_s)
        records = await issued_invitations(replica.store)
        open_ones = [one for one in records if one.name == revoke and _state(one) == "open"]
        for one in open_ones:
            await revoke_invitation(replica, one)
        if not open_ones:
            raise InvitationUnknown(f"no invitation for {revoke} is open")
        if session.out.as_json:
            session.out.emit({"name": revoke, "revoked": len(open_ones)})
        session.out.note(f"{len(open_ones)} revoked for {revoke}")
        return 0


def _state(issued: Issued) -> str:
    if issued.is_revoked:
        return "revoked"
    if issued.claimed_by is not None:
        return "joined"
    return "open" if issued.is_open(now_ms()) else "expired"


def _add_issued(session: Session, table: Table, issued: Issued) -> None:
    """Add an invitation to the table; with --json, write it."""
    invitation, claimed = issued.invitation, issued.claimed_by
    if session.out.as_json:
        session.out.emit(
            {
                "name": issued.name, "state": _state(issued), "role": invitation.role.name.lower(),
                "conversation": invitation.conversation.hex(),
                "key": claimed.hex() if claimed is not None else None,
                "expires_ms": invitation.expire_time_ms,
            }
        )  # fmt: skip
        return
    table.add_row(
        Text(issued.name),
        invitation.role.name.lower(),
        _state(issued),
        short(invitation.conversation),
        short(claimed) if claimed is not None else "",
    )


# --- joining ------------------------------------------------------------------------


@contextmanager
def _errors_of_join(invitation: Invitation) -> Iterator[None]:
    """Say of the hub's absence, or of its wrong key, what a newcomer can do: ask the inviter."""
    try:
        yield
    except HubUnreachable as error:
        raise InviteHubAway(f"{error.detail} at {invitation.hub_address}") from error
    except PeerIdentityChanged as error:
        raise InviteHubChanged(error.detail) from error


def _piped_code() -> str:
    """Read a code from a pipe, where a mail may have broken its lines, or a line of a terminal."""
    return (sys.stdin.readline if sys.stdin.isatty() else sys.stdin.read)(_PIPED_MAX)


async def join(
    session: Session,
    code: Annotated[
        str,
        typer.Argument(
            metavar="CODE", help="The code of `antiphon invite`; - reads it from stdin."
        ),
    ],
    *,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Leave the proof at the hub; do not wait for the answer."),
    ] = False,
) -> None:
    """Join a conversation with a code, and fetch it.

    Prints your key, which the inviter sees too. The command waits until the inviter's replica
    answers. You can interrupt it, and run it again later. Other users of this machine can see
    its arguments meanwhile: with - they do not see the code.
    """
    invitation = read_code(_piped_code() if code == "-" else code)
    public = session.public()
    async with session.replica(linked=False) as replica:
        with _errors_of_join(invitation):
            await check_usable(replica.store, invitation, public)
        await check_folder(replica.store, invitation, session.settings.hub)
    session.out.note(f"your key   {public.hex()}")
    session.out.note(f"inviter    {invitation.inviter.hex()}")
    session.settings.hub = invitation.hub_address
    async with session.replica(hub_key=invitation.hub_key) as replica:
        with _errors_of_join(invitation):
            await require_link(replica, session.settings.sync_timeout_s)
        timeout_s = 0.0 if no_wait else None
        await await_grant(replica, invitation, timeout_s=timeout_s, report=session.say_waiting)
        # First, or a command behind a kill would send what is fetched to another hub.
        save_hub(session.folder, invitation.hub_address)
        fetched = await fetch(session, replica, invitation.conversation)
        if fetched.refusal is not None:
            raise fetched.refusal
        if fetched.held is not None:
            await session.use(replica.store, invitation.conversation)
    entries = len(fetched.held.log) if fetched.held is not None else 0
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": invitation.conversation.hex(), "key": public.hex(),
                "role": invitation.role.name.lower(), "hub": invitation.hub_address,
                "entries": entries, "synchronized": fetched.is_complete,
            }
        )  # fmt: skip
        return
    role = invitation.role.name.lower()
    pieces = (
        invitation.conversation.hex(),
        f"joined as {role}",
        counted(entries, "entry", "entries"),
    )
    session.out.item(Text(), *pieces)
    session.out.note(Text(f"next: {next_command(session.settings, 'chat')}", style="dim"))
