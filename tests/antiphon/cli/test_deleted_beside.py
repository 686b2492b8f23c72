"""A chat whose conversation is deleted beside it while an answer is under way."""

from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.cli.chat import chat_terminal
from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.common import DeletedHere
from antiphon.cli.views.names import Names
from replica.refusals import ConversationUnknown
from tests.antiphon.cli.test_other_branches import Saved
from tests.support.turns import Turns


async def shown(*_: object, **__: object) -> None:
    """Show nothing."""


async def test_a_deletion_that_an_answer_tells_of_first_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was said not to be held, with the advice to ask an owner, and then to be deleted."""
    turns = Turns()
    request = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))

    async def has(_conversation: object) -> bool:
        return False

    async def news() -> None:
        raise ConversationUnknown

    failed: list[Any] = []
    screen = SimpleNamespace(fail=failed.append, note=lambda *_: None, print_entry=shown)
    monkeypatch.setattr(chat_terminal, "ChatScreen", lambda *_: screen)
    replica: Any = SimpleNamespace(
        public=turns.owner.public,
        store=SimpleNamespace(has=has),
        hub=SimpleNamespace(check_taken=lambda _held: None, ending=lambda _id: None),
    )
    session: Any = Saved()
    chat = ChatSession(session, replica, turns.held, None, {}, Names(own=turns.owner.public))
    terminal: Any = chat_terminal.TerminalChat(chat, SimpleNamespace())  # type: ignore[arg-type]
    terminal._answer, terminal._answered = SimpleNamespace(news=news), request.id
    assert await terminal._follow(request.id)
    assert [type(error) for error in failed] == [DeletedHere]
