"""`antiphon new`: begin a conversation, with its members and sampling defaults."""

from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.command import command
from antiphon.cli.output import brief
from antiphon.cli.session import Choices, Session, is_synced
from antiphon.cli.turn import check_text
from replica.conversation import newest_place
from replica.ids import ConversationId, EntryId, PublicKey, key_from_hex, short
from replica.io import Replica, say_as_system
from replica.limits import STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX
from replica.link import HostChoice, HostReason, LinkedHost, host_to_grant
from replica.log import Genesis, Grant, Member, Role, Sampling
from replica.refusals import ArgumentInvalid, NoHost

LOCAL = "Kept by this replica only"
REASON_WORDS = {
    HostReason.NAMED: "named with --host",
    HostReason.PINNED: "pinned in the settings",
    HostReason.VOUCHED: "vouched for by the hub",
}
ROLES = {"reader": Role.READER, "writer": Role.WRITER, "owner": Role.OWNER, "host": Role.HOST}


SystemOption = Annotated[
    str | None, typer.Option("--system", "-s", metavar="TEXT", help="System text.")
]
HostOption = Annotated[
    str | None, typer.Option(metavar="KEY", help="Its model host; else one pinned or vouched for.")
]
MemberOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY:ROLE", help="Grant a role: reader, writer, owner or host."),
]
SeedOption = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Seed of every answer; 0 for a new one each time."),
]
MaxTokensOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Output tokens per answer; 0 for as many as fit.",
        rich_help_panel=LOCAL,
    ),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End an answer before this text.", rich_help_panel=LOCAL),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "new", rich_help_panel="Talk")(new)


async def new(
    session: Session,
    *,
    system: SystemOption = None,
    host: HostOption = None,
    member: MemberOption = None,
    temperature: Annotated[float, typer.Option(metavar="X", min=0.0, help="0 is greedy.")] = 0.2,
    top_p: Annotated[float, typer.Option(metavar="X", min=0.0, max=1.0)] = 0.9,
    top_k: Annotated[int, typer.Option(metavar="N", min=0, help="0 for all.")] = 0,
    min_p: Annotated[float, typer.Option(metavar="X", min=0.0, max=1.0)] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="0 for none.")
    ] = 0.0,
    seed: SeedOption = 0,
    max_tokens: MaxTokensOption = 0,
    stop: StopOption = None,
) -> None:
    """Begin a conversation and print its id.

    Its model host is the one named here, else the one pinned in the settings
    (`host`), else the first the hub vouches for.

    The sampling defaults are written into the log, for all members. Limits and
    stop texts are kept by this replica only.
    """
    check_text(system or "")
    _check_stop(stop or [])
    sampling = Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    grants = [parse_grant(text) for text in member or []]
    named = parse_key(host) if host is not None else None
    async with session.replica() as replica:
        choice = await _choose_host(session, replica, named)
        grants.insert(0, Grant(choice.key, Role.HOST))
        created = await _begin(replica, sampling, grants, system)
        choices = Choices(output_tokens_max=max_tokens, stop=stop or [])
        await session.choose_next(replica.store, created, choices)
        await session.use(replica.store, created)
        await session.sync(replica, created)
        await _report(session, replica, created, choice)


def _check_stop(texts: list[str]) -> None:
    for text in texts:
        check_text(text)
    sizes = [len(text.encode()) for text in texts]
    if len(sizes) > STOP_STRINGS_MAX or not all(0 < n <= STOP_STRING_BYTES_MAX for n in sizes):
        raise ArgumentInvalid(
            f"--stop allows at most {STOP_STRINGS_MAX} texts of 1 to {STOP_STRING_BYTES_MAX} bytes"
        )


async def _begin(
    replica: Replica, sampling: Sampling, grants: list[Grant], system: str | None
) -> ConversationId:
    created = await replica.create(Genesis((replica.public,), sampling))
    for grant in grants:
        held = await replica.load(created)
        heads = held.log.membership_heads() or (EntryId(created),)
        await replica.append(created, Member(grant), parents=heads)
    if system is not None:
        await say_as_system(replica, created, system, newest_place(await replica.load(created)))
    return created


async def _report(
    session: Session, replica: Replica, created: ConversationId, choice: HostChoice
) -> None:
    model = model_name(replica.hub.hosts, choice.key)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": created.hex(),
                "host": choice.key.hex(),
                "host_reason": choice.reason.value,
                "model": model,
                "synchronized": is_synced(replica, created),
            }
        )
        return
    session.out.show(created.hex())
    line = f"host {short(choice.key)}" + (f" ({model})" if model else "")
    why = REASON_WORDS[choice.reason]
    session.out.note(Text(f"{line}, {why} · next: antiphon chat", style="dim"))
    if not is_synced(replica, created):
        await session.say_offline(replica, await replica.load(created))


def model_name(hosts: tuple[LinkedHost, ...], key: PublicKey) -> str:
    """Return the profile names of a linked host; empty if unknown."""
    names = (profile.name for host in hosts if host.key == key for profile in host.info.profiles)
    return next(names, "")


async def _choose_host(session: Session, replica: Replica, named: PublicKey | None) -> HostChoice:
    """Wait for the hub's list of hosts and choose the one to grant to. Raises NoHost."""
    await replica.wait_for(
        lambda: replica.hub.is_linked or replica.hub.last_error is not None,
        session.settings.sync_timeout_s,
    )
    try:
        return host_to_grant(named, session.settings.host_key, replica.hub.hosts)
    except NoHost as error:
        if replica.hub.is_linked or replica.hub.last_error is None:
            raise
        away = f"{error.detail}; the hub is away: {brief(replica.hub.last_error)}"
        raise NoHost(away) from replica.hub.last_error


def parse_key(text: str) -> PublicKey:
    """Read a public key of 64 hex digits. Raises ArgumentInvalid."""
    try:
        return key_from_hex(text)
    except ValueError as error:
        raise ArgumentInvalid(str(error)) from error


def parse_grant(text: str) -> Grant:
    """Read KEY:ROLE. Raises ArgumentInvalid."""
    key, _, role = text.partition(":")
    if role.lower() not in ROLES:
        raise ArgumentInvalid(f"'{text}' is not KEY:ROLE; roles are {', '.join(ROLES)}")
    return Grant(parse_key(key), ROLES[role.lower()])
