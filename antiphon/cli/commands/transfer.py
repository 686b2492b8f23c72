"""`antiphon export`, `import` and `delete` of whole conversations."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.commands.findings import check
from antiphon.cli.commands.log import print_row
from antiphon.cli.commands.second_look import held_of
from antiphon.cli.common import (
    ChecksFailed,
    ConversationArgument,
    Session,
    Unconfirmed,
    blobs_of,
    command,
    is_confirmed,
    load_from,
    next_command,
    opened_bundle,
    store_blobs,
    write_bundle,
)
from antiphon.cli.views import (
    TALK,
    Names,
    counted,
    entries_at,
    entry_record,
    losses_in,
    row_of,
    title_of,
)
from replica.conversation import Conversation, newest_place, removal_of
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io import Blobs, Replica, forget_answered, import_entries, void_invitations
from replica.log import Bundle
from replica.refusals import ConversationDeleted, ConversationUnknown

_NAMED = 4
"""Keys that a line names."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Entries of a file that is imported."""

    verified: int
    new: int
    """Those that were not here before."""
    kept_back: int
    """Those of them that the hub has and did not send."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, function in (("export", export), ("import", import_), ("delete", delete)):
        command(app, name, rich_help_panel="Keep")(function)


async def export(
    session: Session,
    conversation: Annotated[str, typer.Argument(metavar="ID", help="First digits of its id.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The bundle to write.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a conversation with its signatures into one file."""
    async with session.reading() as store:
        held = await load_from(store, await session.choose(store, conversation))
        losses = await losses_in(store, held)
    # Without all membership entries, a revoked key could count as a member.
    held.require_whole()
    blobs = await blobs_of(session, held.id)
    size = await write_bundle(file, held, blobs, force=force)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": held.id.hex(), "file": str(file), "bytes": size,
                "entries": len(held.log), "blobs": len(blobs), "digest": held.log.digest.hex(),
            }
        )  # fmt: skip
        return
    entries = counted(len(held.log), "entry", "entries")
    session.out.show(f"{file}  {entries}, {counted(len(blobs), 'blob', 'blobs')}, {size:,} bytes")
    if held.damage or losses.count:
        session.say_damaged(held, losses)
    step = next_command(session.settings, "verify", "--bundle", str(file))
    session.out.note(Text(f"next: {step}", style="dim"))


async def import_(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle.")],
    *,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show and check it; store nothing.")
    ] = False,
) -> None:
    """Import a conversation from a file, verify it, and send it to the hub."""
    with opened_bundle(file) as bundle:
        if read_only:
            _show_bundle(session, bundle)
            return
        async with session.replica() as replica:
            await _import(session, replica, file, bundle)


async def _import(session: Session, replica: Replica, file: Path, bundle: Bundle) -> None:
    conversation = bundle.entries[0].conversation
    before = await _ids_held(replica, conversation)
    new = {entry.id for entry in bundle.entries} - before
    asks = before and new
    at_hub = await held_of(session, replica, conversation, new) if asks else frozenset()
    imported = await import_entries(replica, bundle.entries)
    await store_blobs(session, imported, file, bundle)
    if not before:  # else the next message goes where it would have gone
        await session.use(replica.store, imported)
    kept = len(at_hub & (await replica.load(imported)).log.covered()) if at_hub else 0
    counts = _Counts(len(bundle.entries), len(new), kept)
    await _report_import(session, replica, imported, counts)


async def delete(
    session: Session,
    conversation: ConversationArgument = None,
    *,
    hub: Annotated[
        bool, typer.Option("--hub", help="Delete it from the hub too; owners only.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete a conversation from this replica; with --hub, from the hub as well.

    Other members and model hosts keep their copies.
    """
    async with session.replica(linked=hub) as replica:
        chosen = await session.choose(replica.store, conversation)
        held = await replica.load(chosen)
        keeping = _others(held, replica.public) if hub else ()
        # At a hub that is told to delete it, nobody looks for what it lacks.
        unsynced = 0 if hub else replica.hub.unsynced(chosen)
        left = [*_unsynced_lines(unsynced), *_kept_lines(keeping)]
        if not yes and not _asks_first(session, held, left, hub=hub):
            session.out.note("nothing was deleted")
            return 1
        # The hub first: if it refuses, the local copy is unchanged.
        at_hub = await _delete_at_hub(replica, chosen) if hub else None
        # The log last: without it, no later delete finds the blobs that a kill in between left,
        # and nothing shows that a join was answered.
        await forget_answered(replica, chosen)
        await Blobs(session.settings.blobs_path).delete(chosen)
        await replica.delete(chosen)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": chosen.hex(), "entries_at_hub": at_hub, "deleted": True,
                "kept_by": None if keeping is None else [key.hex() for key in keeping],
                "unsynced": unsynced,
            }
        )  # fmt: skip
        return 0
    where = "here and at the hub" if hub else "here"
    session.out.show(f"{short(chosen)} deleted {where}")
    for line in left:
        session.out.note(line)
    return 0


async def _delete_at_hub(replica: Replica, conversation: ConversationId) -> int:
    """Delete it at the hub, and void its codes; return the number of entries the hub had.

    None are left of one that was deleted there before: a command that a kill or a full disk ended
    behind that is completed by the same command.
    """
    entries = 0
    with suppress(ConversationDeleted):
        entries = await replica.calls().delete(conversation)
    await void_invitations(replica, conversation)
    return entries


def _others(held: Conversation, own: PublicKey) -> tuple[PublicKey, ...] | None:
    """Return the other members: a deletion at the hub erases nothing of theirs.

    None where damage hides who they are.
    """
    if held.is_blocked or held.log.genesis is None:
        return None
    return tuple(key for key in held.log.membership.roles if held.is_member(key) and key != own)


def _unsynced_lines(unsynced: int) -> list[str]:
    """Return what nobody else is known to hold."""
    count = counted(unsynced, "entry", "entries")
    return [f"not known to be at a hub: {count}"] if unsynced else []


def _kept_lines(keeping: Sequence[PublicKey] | None) -> list[str]:
    if keeping is None:
        return [
            "copies stay with all other members and model hosts; damage here hides who they are"
        ]
    named = ", ".join(map(short, keeping[:_NAMED])) + (", …" if len(keeping) > _NAMED else "")
    members = counted(len(keeping), "member", "members")
    return [f"copies stay with {members}, model hosts included: {named}"] if keeping else []


def _asks_first(session: Session, held: Conversation, left: Sequence[str], *, hub: bool) -> bool:
    where = "this replica and the hub, for good" if hub else "this replica"
    size = counted(len(held.log), "entry", "entries")
    return is_confirmed(
        session.out,
        [f"{short(held.id)}  {title_of(held)}  ({size})", *left],
        f"Delete it from {where}?",
        Unconfirmed("there is no terminal to ask whether to delete it"),
    )


async def _ids_held(replica: Replica, conversation: ConversationId) -> set[EntryId]:
    loaded = await replica.store.load(conversation)
    return {entry.id for entry in loaded.entries}


async def _report_import(
    session: Session, replica: Replica, imported: ConversationId, counts: _Counts
) -> None:
    held = await replica.load(imported)
    online, refusal = False, ""
    if held.is_blocked or held.is_member(replica.public):
        try:
            online = await session.sync(replica, imported)
        except AntiphonError as error:
            refusal = f"{error.detail} [{error.reason}]"
    is_member = held.is_member(replica.public)
    record: dict[str, Any] = {
        "conversation": imported.hex(), "entries": len(held.log), "digest": held.log.digest.hex(),
        "verified": counts.verified, "new": counts.new, "kept_back": counts.kept_back,
        "is_member": is_member, "synchronized": online, "refusal": refusal or None,
    }  # fmt: skip
    if session.out.as_json:
        session.out.emit(record)
        return
    session.out.show(imported.hex())
    verified = counted(counts.verified, "entry", "entries")
    session.out.note(f"{verified} verified, {counts.new} of them new here")
    if counts.kept_back:
        session.out.note(
            f"the hub has {counted(counts.kept_back, 'entry', 'entries')} of them and did not send"
            f" them here. next: {next_command(session.settings, 'verify', '--hub')}"
        )
    if held.is_blocked:
        losses = await losses_in(replica.store, held)
        session.say_damaged(held, losses, is_refused=bool(refusal))
    elif (removal := removal_of(held, replica.public)) is not None:
        session.out.note(removal.detail)
    elif not is_member:
        session.out.note(
            "you can read it here; to sync or write, ask an owner for an invitation, and join"
        )
    elif refusal:
        session.out.note(f"the hub refuses it: {refusal}")
    elif online:
        session.out.note("the hub holds the same entries")
    else:
        await session.say_offline(replica, held)


def _show_bundle(session: Session, bundle: Bundle) -> None:
    conversation = bundle.entries[0].conversation
    findings = check(conversation, bundle.entries)
    held = Conversation.restore(conversation, bundle.entries)
    if held.log.genesis is None:
        raise ConversationUnknown("the bundle lacks its genesis")
    names = Names(session.own_key())
    shown = entries_at(held, newest_place(held))
    if session.out.as_json:
        shown = sorted(held.log.entries.values(), key=lambda e: e.order_key)
    for entry in shown:
        if session.out.as_json:
            session.out.emit(entry_record(held, entry))
        elif entry.header.kind in TALK:
            print_row(session, row_of(held, entry, names))
    numbers = (
        counted(findings.entries, "entry", "entries"), counted(findings.seals, "seal", "seals"),
        f"{len(findings.bad)} bad",
    )  # fmt: skip
    session.out.note(f"{short(conversation)}: {', '.join(numbers)}; nothing was stored")
    if findings.bad:
        raise ChecksFailed(findings.bad[0])
