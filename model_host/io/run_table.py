"""The runs in progress: their drafts and their CANCELs (spec/07-host §4, spec/04-link §6)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.io.run_driver import RunDriver
from replica.conversation import Draft, sign_draft
from replica.ids import ConversationId, EntryId
from replica.io import Replica


class RunTable:
    """The runs of a host by the request each answers."""

    def __init__(self, replica: Replica, key: Ed25519PrivateKey) -> None:
        """Send drafts through `replica`, signed with `key`."""
        self._replica = replica
        self._key = key
        self._drivers: dict[EntryId, RunDriver] = {}

    @contextmanager
    def holding(self, driver: RunDriver) -> Iterator[None]:
        """Hold a run in the table for the block."""
        request_id = driver.run.plan.request_id
        self._drivers[request_id] = driver
        try:
            yield
        finally:
            del self._drivers[request_id]

    def show(self, frame: Draft) -> None:
        """Send a frame of a run if its seal is acked; hubs refuse drafts of unknown seals."""
        driver = self._drivers.get(frame.request)
        hub = self._replica.hub
        if driver is not None and hub.is_acked(frame.conversation, driver.run.seal_id):
            self._replica.send_draft(sign_draft(frame, self._key))

    def handle_admitted(self, conversation: ConversationId) -> None:
        """Let the runs of a conversation check for CANCELs after entries were admitted."""
        for driver in self._in(conversation):
            driver.check_cancelled()

    def handle_acked(self, conversation: ConversationId, acked: Iterable[EntryId]) -> None:
        """Send the frames of runs whose seals are acked now; none were sent before."""
        seals = set(acked)
        for driver in self._in(conversation):
            if driver.run.seal_id in seals:
                self._show_from_start(driver)

    def handle_synchronized(self, conversation: ConversationId) -> None:
        """Send all frames of a conversation's runs again, since a restarted hub has lost them."""
        for driver in self._in(conversation):
            self._show_from_start(driver)

    def _in(self, conversation: ConversationId) -> list[RunDriver]:
        return [d for d in self._drivers.values() if d.run.plan.conversation == conversation]

    def _show_from_start(self, driver: RunDriver) -> None:
        for frame in driver.run.drafts:
            self.show(frame)
