"""The branches beside the one that a chat shows, which it announces as they come."""

from collections.abc import Iterable

from antiphon.cli.chat_screen import ChatScreen
from antiphon.cli.chat_session import ChatSession
from antiphon.cli.session import Choices
from antiphon.cli.whose_branch import branch_words
from replica.conversation import goes_behind
from replica.ids import EntryId
from replica.log import Entry, Kind
from replica.order import SealNode


class OtherBranches:
    """What one chat has to announce, and has announced."""

    def __init__(self, chat: ChatSession, screen: ChatScreen) -> None:
        """Announce on `screen` what is not on the branch of `chat`."""
        self._chat = chat
        self._screen = screen
        self._new: list[EntryId] = []
        self._said_for = ("", "")
        """The chosen entry, and the branch left for it, once it was said that this goes on."""

    def receive(self, entries: Iterable[Entry]) -> None:
        """Note the seals among new entries."""
        self._new += [entry.id for entry in entries if entry.header.kind == Kind.SEAL]

    async def announce(self) -> None:
        """Say where new seals have begun other branches, and that others go on with the one left.

        A branch is left while the next message follows a chosen entry.
        """
        new, self._new = self._new, []
        if not new:
            return
        choices, order = await self._chat.choices(), self._chat.held.order
        choice = (choices.at, self._chat.branch)
        shown = goes_behind(self._chat.held, choices.place(self._chat.held))
        for node in filter(None, map(order.nodes.get, new)):
            if _is_on(shown, node):
                continue
            goes_on = self._is_on_left(choices, node)
            is_first = goes_on and self._said_for != choice
            is_others = self._is_of_others(node) and (is_first or node.parent is shown)
            if len(order.children(node.parent)) > 1 or is_others:
                self._say(node)
                self._said_for = choice if goes_on else self._said_for

    def _is_on_left(self, choices: Choices, node: SealNode) -> bool:
        """Say whether a seal is on the branch from which the user went to a chosen entry."""
        held = self._chat.held
        left = Choices(branch=self._chat.branch).place(held)
        return bool(choices.at) and _is_on(goes_behind(held, left), node)

    def _is_of_others(self, node: SealNode) -> bool:
        author = self._chat.held.log.entries[node.seal.request].header.author
        return author != self._chat.replica.public

    def _say(self, node: SealNode) -> None:
        chat = self._chat
        self._screen.note(
            f"another branch, by {branch_words(chat.held, node, chat.names)}"
            f" · /switch {chat.short(node.id)} goes there",
            "yellow",
        )


def _is_on(end: SealNode | None, node: SealNode) -> bool:
    """Say whether a seal is on the branch that ends with another."""
    return end is not None and end.extends(node)
