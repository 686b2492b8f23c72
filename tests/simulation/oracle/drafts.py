"""Claims about drafts: the host's tokens, without gaps, all of the current run."""

from dataclasses import dataclass

from replica.conversation.drafts import Draft
from replica.ids import ConversationId, EntryId
from replica.link.events import SyncState
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import Violation


@dataclass(slots=True)
class _Run:
    host: str
    conversation: ConversationId
    token_ids: tuple[int, ...]
    began_at: float
    streams: bool


class Drafts:
    """The tokens that hosts streamed, and those that each reader received."""

    def __init__(self, mix: Mix) -> None:
        self._is_whole = mix.delivers_drafts
        self._runs: dict[tuple[EntryId, int], _Run] = {}
        self._newest: dict[EntryId, int] = {}
        self._read: dict[tuple[str, int, EntryId, int], int] = {}
        self._synchronized_since: dict[tuple[str, ConversationId], float] = {}

    def began(
        self,
        host: str,
        conversation: ConversationId,
        request: EntryId,
        run: int,
        token_ids: tuple[int, ...],
        now: float,
        *,
        streams: bool,
    ) -> None:
        """Record the tokens that a host is about to stream."""
        self._runs[request, run] = _Run(host, conversation, token_ids, now, streams)
        self._newest[request] = run

    def read(self, name: str, incarnation: int, draft: Draft) -> None:
        """Check a delivered draft frame: the host's tokens, without gaps per run."""
        known = self._runs.get((draft.request, draft.run))
        streamed = known.token_ids if known else ()
        end = draft.token_offset + len(draft.token_ids)
        if streamed[draft.token_offset : end] != draft.token_ids:
            raise Violation(f"{name} read a draft that was not streamed")
        reader = (name, incarnation, draft.request, draft.run)
        if draft.token_offset not in (0, self._read.get(reader, 0)):
            raise Violation(f"{name} read a draft with a gap")
        self._read[reader] = end

    def crashed(self, name: str) -> None:
        """Record the crash of a process."""
        for known in [k for k in self._synchronized_since if k[0] == name]:
            del self._synchronized_since[known]

    def state(self, name: str, conversation: ConversationId, state: SyncState, now: float) -> None:
        """Record since when a conversation is synchronized without interruption."""
        if state is SyncState.SYNCHRONIZED:
            self._synchronized_since.setdefault((name, conversation), now)
        else:
            self._synchronized_since.pop((name, conversation), None)

    def answered(self, name: str, incarnation: int, request: EntryId, number: int) -> None:
        """Check that a reader of an answer has received all drafts of its run.

        Applies if nothing is lost in transit and both ends were synchronized before.
        """
        run = self._runs.get((request, number))
        if run is None or not self._is_whole or not run.streams or run.host == name:
            return
        ends = ((name, run.conversation), (run.host, run.conversation))
        since = [self._synchronized_since.get(end) for end in ends]
        if self._newest[request] != number or any(at is None or at > run.began_at for at in since):
            return
        got = self._read.get((name, incarnation, request, number), 0)
        if got != len(run.token_ids):
            raise Violation(f"{name} read {got} of {len(run.token_ids)} tokens of an answer")
