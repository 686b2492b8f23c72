"""`antiphon pages export` and `import`: a host's checkpoint carried as a file.

The file is encrypted for hosts of one key ring: whoever carries it can neither read nor
change it (spec/08-checkpoint §8).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.text import Text

from antiphon.cli.common import (
    Session,
    check_replaceable,
    command,
    linked_host,
    new_file,
    next_command,
    parse_key,
)
from antiphon.cli.views import Output
from replica.ids import ID_BYTES, ConversationId, PublicKey, short
from replica.io import HostCalls, Replica
from replica.link import HostInfo
from replica.refusals import ArgumentInvalid

PART_BYTES = 256 * 1024
_MAGIC = b"ANTKVA1\n"
_CONVERSATION = slice(len(_MAGIC), len(_MAGIC) + ID_BYTES)
"""The place of the conversation's id in an archive."""

HostOption = Annotated[
    str | None, typer.Option("--host", metavar="KEY", help="The model host; else one linked.")
]


def add_to(group: typer.Typer) -> None:
    """Add the commands to a group."""
    command(group, "export")(export)
    command(group, "import")(import_)


async def export(
    session: Session,
    conversation: Annotated[str, typer.Argument(metavar="ID", help="First digits of its id.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")],
    *,
    host: HostOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a host's newest checkpoint of a conversation into an encrypted file."""
    check_replaceable(file, force=force)
    async with session.replica() as replica:
        chosen = await session.choose(replica.store, conversation)
        found = await _host_of(session, replica, chosen, host)
        async with HostCalls(found.address, replica.key, found.key) as calls:
            size = await _write(file, calls, chosen, force=force)
    if session.out.as_json:
        session.out.emit({"conversation": chosen.hex(), "file": str(file), "bytes": size})
        return
    show_export(session, file, size, found.key)


def show_export(session: Session, file: Path, size: int, host: PublicKey) -> None:
    """Show an archive of `size` bytes that `host` wrote, and the next command."""
    session.out.show(f"{file}  {size:,} bytes, for hosts with the key ring of {short(host)}")
    step = next_command(session.settings, "pages", "import", str(file), "--host", "KEY")
    session.out.note(Text(f"next: {step}", style="dim"))


async def import_(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive.")],
    *,
    host: HostOption = None,
) -> None:
    """Let a host continue from a checkpoint that another one with the same key ring wrote."""
    with file.open("rb") as stream:  # an OSError is reported with the file's name
        begins = stream.read(_CONVERSATION.stop)
        if not begins.startswith(_MAGIC) or len(begins) < _CONVERSATION.stop:
            raise ArgumentInvalid(f"{file} is no checkpoint archive")
        chosen = ConversationId(begins[_CONVERSATION])
        stream.seek(0)
        async with session.replica() as replica:
            found = await _host_of(session, replica, chosen, host)
            async with HostCalls(found.address, replica.key, found.key) as calls:
                done = await calls.import_(_parts(stream))
    record = {
        "conversation": chosen.hex(), "host": found.key.hex(),
        "tokens": done.checkpoint.tokens, "bytes": done.checkpoint.size_bytes,
    }  # fmt: skip
    if session.out.as_json:
        session.out.emit(record)
    else:
        show_import(session.out, chosen, done.checkpoint.tokens, found.key)


def show_import(out: Output, conversation: ConversationId, tokens: int, host: PublicKey) -> None:
    """Show the checkpoint of `tokens` tokens that `host` took."""
    out.show(f"{short(conversation)}  {tokens:,} tokens stored at {short(host)}")


async def _host_of(
    session: Session, replica: Replica, conversation: ConversationId, named: str | None
) -> HostInfo:
    """Return the linked host of the conversation. Raises HostNotLinked, HostMissing."""
    wanted = parse_key(named) if named else None
    held = await replica.load(conversation)
    await session.sync(replica, conversation)
    return linked_host(replica, held, wanted).info


async def _write(file: Path, calls: HostCalls, conversation: ConversationId, *, force: bool) -> int:
    """Write an archive atomically; return its size in bytes."""
    with new_file(file, force=force) as stream:
        async for part in calls.export(conversation):
            stream.write(part)
        return stream.tell()


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a file's bytes."""
    while part := stream.read(PART_BYTES):
        yield part
