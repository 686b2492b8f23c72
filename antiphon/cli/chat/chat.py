"""`antiphon chat`: talk with the model and with the other members of a conversation."""

import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from antiphon.cli.chat import chat_lines, chat_terminal
from antiphon.cli.chat.chat_session import open_chat
from antiphon.cli.commands import ProfileOption, begin_default, conflict_option, parse_conflict
from antiphon.cli.common import ConversationArgument, Session, command
from antiphon.cli.terminal import Keyboard, raw_keyboard
from replica.io import Replica
from replica.log import Conflict


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "chat", rich_help_panel="Talk")
    async def chat(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        conflict: Annotated[str | None, conflict_option("behind /fork")] = None,
        max_tokens: Annotated[
            int | None, typer.Option(metavar="N", min=1, help="Output tokens per answer.")
        ] = None,
        profile: ProfileOption = None,
    ) -> int:
        """Chat with the model and the other members; /help lists the commands.

        If this replica holds no conversation yet, it creates one.
        """
        way = parse_conflict(conflict)
        changes = {"output_tokens_max": max_tokens, "profile": profile}
        with raw_keyboard() if _has_keyboard(session) else nullcontext() as keyboard:
            async with session.replica() as replica:
                return await _talk(session, replica, conversation, way, changes, keyboard)


async def _talk(
    session: Session,
    replica: Replica,
    conversation: str | None,
    way: Conflict | None,
    changes: dict[str, Any],
    keyboard: Keyboard | None,
) -> int:
    if conversation is None and not await replica.store.conversations():
        await begin_default(session, replica)
    chosen = await session.choose(replica.store, conversation)
    opened = await open_chat(session, replica, chosen, way, changes)
    if keyboard is not None:
        return await chat_terminal.talk(opened, keyboard)
    return await chat_lines.talk(opened)


def _has_keyboard(session: Session) -> bool:
    return session.out.is_terminal and session.out.can_draw and sys.stdin.isatty()
