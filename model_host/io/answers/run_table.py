"""The runs in progress: their drafts and their CANCELs (spec/07-host §4, spec/04-link §6)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.batching import RunView
from replica.conversation import Draft, sign_draft
from replica.ids import ConversationId, EntryId
from replica.io import Replica


class Running(Protocol):
    """A run in progress, as the table sees it."""

    @property
    def conversation(self) -> ConversationId:
        """Return the conversation of the request that it answers."""

    @property
    def request(self) -> EntryId:
        """Return the request that it answers."""

    @property
    def seal(self) -> EntryId:
        """Return the seal of its context."""

    @property
    def view(self) -> RunView:
        """Return its progress."""

    @property
    def shown(self) -> Sequence[Draft]:
        """Return its frames so far, signed."""

    def check_cancelled(self) -> None:
        """End the run if the log has a CANCEL of its request."""

    def interrupt(self, detail: str) -> None:
        """End the run as interrupted."""


class RunTable:
    """The runs of a host by the request each answers."""

    def __init__(self, replica: Replica, key: Ed25519PrivateKey) -> None:
        """Send drafts through `replica`, signed with `key`."""
        self._replica = replica
        self._key = key
        self._runs: dict[EntryId, Running] = {}
        self._sent: dict[EntryId, int] = {}
        """How many frames of each run were sent, since its seal was acked or the link began."""

    @contextmanager
    def holding(self, run: Running) -> Iterator[None]:
        """Hold a run in the table for the block."""
        self._runs[run.request], self._sent[run.request] = run, 0
        try:
            yield
        finally:
            del self._runs[run.request], self._sent[run.request]

    def views(self) -> list[RunView]:
        """Return the progress of all runs."""
        return [run.view for run in self._runs.values()]

    def sign(self, frame: Draft) -> Draft:
        """Return a frame with the host's signature."""
        return sign_draft(frame, self._key)

    def show(self, frame: Draft) -> None:
        """Send a signed frame if its run's seal is acked; hubs refuse drafts of unknown seals.

        Of one with tokens those before it come first that the hub had no credit for: behind a
        gap it takes none.
        """
        run = self._runs.get(frame.request)
        if run is None or not self._replica.hub.is_acked(frame.conversation, run.seal):
            return
        if frame.progress is not None:
            self._replica.send_draft(frame)
        else:
            self._send_rest(run)

    def _send_rest(self, run: Running) -> None:
        """Send the frames of a run that were not sent yet, as far as there is credit."""
        frames = run.shown
        for at in range(self._sent[run.request], len(frames)):
            if not self._replica.send_draft(frames[at]):
                return
            self._sent[run.request] = at + 1

    def handle_admitted(self, conversation: ConversationId) -> None:
        """Let the runs of a conversation check for CANCELs after entries were admitted."""
        for run in self._in(conversation):
            run.check_cancelled()

    def handle_ended(self, conversation: ConversationId, detail: str) -> None:
        """End the runs of a conversation of which the hub takes nothing any more."""
        for run in self._in(conversation):
            run.interrupt(detail)

    def handle_acked(self, conversation: ConversationId, acked: Iterable[EntryId]) -> None:
        """Send the frames of runs whose seals are acked now; none were sent before."""
        seals = set(acked)
        for run in self._in(conversation):
            if run.seal in seals:
                self._show_from_start(run)

    def handle_synchronized(self, conversation: ConversationId) -> None:
        """Send all frames of a conversation's runs again, since a restarted hub has lost them."""
        for run in self._in(conversation):
            self._show_from_start(run)

    def _in(self, conversation: ConversationId) -> list[Running]:
        return [run for run in self._runs.values() if run.conversation == conversation]

    def _show_from_start(self, run: Running) -> None:
        self._sent[run.request] = 0
        if run.shown:
            self.show(run.shown[-1])
