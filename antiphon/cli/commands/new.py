"""`antiphon new`: begin a conversation, with its members and sampling defaults."""

from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.common import (
    Session,
    Settings,
    UsageInvalid,
    check_text,
    command,
    find_key,
    next_command,
    parse_key,
)
from replica.ids import ConversationId, PublicKey, short
from replica.io import Replica, begin, petnames
from replica.limits import STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX
from replica.link import (
    HostChoice,
    HostReason,
    LinkedHost,
    profile_names,
    profiles_of,
    sampling_to_state,
)
from replica.log import Grant, Role, Sampling
from replica.refusals import ArgumentInvalid

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
NoHostOption = Annotated[
    bool, typer.Option("--no-host", help="Without a model host, until one is invited or granted.")
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
        metavar="N", min=1, help="Output tokens per answer; one cut off can be continued."
    ),
]
StopOption = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="End an answer before this text.")
]
SharePagesOption = Annotated[
    bool,
    typer.Option(
        "--share-pages",
        help="Let hosts reuse what they computed for your other conversations with this option,"
        " even if those have other readers. From the time to an answer, a member can tell how those"
        " begin.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "new", rich_help_panel="Talk")(new)


async def new(
    session: Session,
    *,
    system: SystemOption = None,
    host: HostOption = None,
    no_host: NoHostOption = False,
    member: MemberOption = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, help="0 is greedy.")
    ] = None,
    top_p: Annotated[float | None, typer.Option(metavar="X", min=0.0, max=1.0)] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", min=0, help="0 for all.")] = None,
    min_p: Annotated[float | None, typer.Option(metavar="X", min=0.0, max=1.0)] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, help="0 for none.")
    ] = None,
    seed: SeedOption = 0,
    max_tokens: MaxTokensOption = begin.OUTPUT_TOKENS_MAX,
    stop: StopOption = None,
    share_pages: SharePagesOption = False,
) -> None:
    """Begin a conversation and print its id.

    Its model host is the one named here, else the one pinned in the settings
    (`host`), else the first the hub vouches for.

    Limits, stop texts and sampling options given here are written to the log as
    defaults for all members. Options that you leave out take the host's
    recommended values. Without any sampling option, each request takes the values
    that its host recommends.
    """
    check_text(system or "")
    _check_stop(stop or [])
    options = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    grants = [parse_grant(text) for text in member or []]
    if no_host and host is not None:
        raise UsageInvalid("--no-host and --host exclude each other")
    async with session.replica() as replica:
        choice = None if no_host else await _choose_host(session, replica, host)
        if choice is not None:
            grants.insert(0, Grant(choice.key, Role.HOST))
        sampling = _default_sampling(replica, choice, given)
        created = await begin.begin(
            replica, sampling, grants, system, output_tokens_max=max_tokens,
            stop=tuple(stop or ()), shares_pages=share_pages,
        )  # fmt: skip
        await session.use(replica.store, created)
        await session.sync(replica, created)
        await _report(session, replica, created, choice)


async def begin_default(session: Session, replica: Replica) -> ConversationId:
    """Begin a conversation without options, and say so. Raises NoHost."""
    choice = await _choose_host(session, replica, None)
    created = await begin.begin(replica, None, [Grant(choice.key, Role.HOST)], None)
    await session.use(replica.store, created)
    host = model_name(replica.hub.hosts, choice.key) or short(choice.key)
    session.out.note(Text(f"a new conversation with {host}", style="dim"))
    return created


def _check_stop(texts: list[str]) -> None:
    for text in texts:
        check_text(text)
    sizes = [len(text.encode()) for text in texts]
    if len(sizes) > STOP_STRINGS_MAX or not all(0 < n <= STOP_STRING_BYTES_MAX for n in sizes):
        raise ArgumentInvalid(
            f"--stop allows at most {STOP_STRINGS_MAX} texts of 1 to {STOP_STRING_BYTES_MAX} bytes"
        )


def _default_sampling(
    replica: Replica, host: HostChoice | None, given: dict[str, Any]
) -> Sampling | None:
    """Return the conversation's default: the options given, over the host's recommendation."""
    if not given:
        return None
    profiles = profiles_of(replica.hub.hosts, host.key) if host is not None else ()
    return replace(sampling_to_state(None, profiles, None), **given)


async def _report(
    session: Session, replica: Replica, created: ConversationId, choice: HostChoice | None
) -> None:
    model = model_name(replica.hub.hosts, choice.key) if choice is not None else ""
    is_at_hub = replica.hub.is_in_sync(created) and not replica.hub.unsynced(created)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": created.hex(),
                "host": choice.key.hex() if choice is not None else None,
                "host_reason": choice.reason.value if choice is not None else None,
                "model": model,
                "synchronized": is_at_hub,
            }
        )
        return
    session.out.show(created.hex())
    session.out.note(Text(_host_words(session.settings, choice, model), style="dim"))
    if not is_at_hub:
        await session.say_offline(replica, await replica.load(created))


def _host_words(settings: Settings, choice: HostChoice | None, model: str) -> str:
    if choice is None:
        invite = next_command(settings, "invite", "NAME", "--role", "host")
        return f"no model host yet · next: {invite}"
    line = f"host {short(choice.key)}" + (f" ({model})" if model else "")
    return f"{line}, {REASON_WORDS[choice.reason]} · next: {next_command(settings, 'chat')}"


def model_name(hosts: tuple[LinkedHost, ...], key: PublicKey) -> str:
    """Return the name of a linked host's default profile; empty if unknown."""
    return next(iter(profile_names(profiles_of(hosts, key))), "")


async def _choose_host(session: Session, replica: Replica, host: str | None) -> HostChoice:
    """Wait for the hub's list of hosts and choose the one to grant to. Raises NoHost."""
    settings, named = session.settings, None
    if host is not None:
        await replica.wait_for(lambda: replica.hub.is_tried, settings.sync_timeout_s)
        linked = [info.key for info in replica.hub.hosts]
        named = find_key(host, linked, await petnames.names(replica.store))
    return await begin.choose_host_to_grant(
        replica, named, settings.host_key, settings.sync_timeout_s
    )


def parse_grant(text: str) -> Grant:
    """Read KEY:ROLE. Raises ArgumentInvalid."""
    key, _, role = text.partition(":")
    if role.lower() not in ROLES:
        raise ArgumentInvalid(f"'{text}' is not KEY:ROLE; roles are {', '.join(ROLES)}")
    return Grant(parse_key(key), ROLES[role.lower()])
