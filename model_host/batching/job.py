"""One run that is being computed, and the events that report on it (spec/07-host §5). Pure."""

from dataclasses import dataclass, field
from typing import Self

from model_host.batching.speculation import Speculation
from model_host.generation import Run
from model_host.kv import KVSequence
from model_host.sampling import Choice
from replica.errors import HostError
from replica.log import FinishReason


@dataclass(frozen=True, slots=True)
class Found:
    """The part of a context that was found, in tokens."""

    cached_tokens: int
    """In the pages of the conversation itself."""
    restored_tokens: int
    shared_tokens: int = 0
    """Only in the pages of other conversations: nobody but the owner may learn it (PAGE-8)."""

    @classmethod
    def before_steps(cls, sequence: KVSequence, restored: int) -> Self:
        """Return the parts of a sequence that no step has computed yet.

        Restored tokens lie behind those in memory, of which an incomplete group is restored too.
        """
        cached = sequence.tokens - restored
        own = min(sequence.own_tokens, cached)
        return cls(own, restored, cached - own)


@dataclass(frozen=True, slots=True)
class Computed:
    """The progress of a prompt: tokens computed so far, without those found."""

    tokens: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A token of the output, and the bytes that it makes visible."""

    choice: Choice
    shown: bytes
    is_first: bool
    """It is the first token of the run."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has finished, or can't go on because of an error."""

    error: HostError | None = None


Event = Found | Computed | Chosen | Ended


def is_urgent(event: Event) -> bool:
    """Say whether a reader waits for an event: the first token of a run, or its end."""
    return isinstance(event, Ended) or (isinstance(event, Chosen) and event.is_first)


@dataclass(slots=True, eq=False)
class Job:
    """The computation of one run, from its context to its last token."""

    run: Run
    conversation: bytes
    owner: bytes
    """The key whose requests share their turns."""
    domain: bytes
    """Digest of the namespace of pages in memory, for the conversation's sharing domain."""
    namespace: bytes
    """Digest of the namespace of stored pages, for the conversation's owner."""
    ids: list[int] = field(init=False)
    """All tokens so far: the prompt, and the output."""
    speculation: Speculation = field(init=False)
    sequence: KVSequence | None = None
    """Its pages; None while it has none, before its turn and after it was preempted."""
    is_decoding: bool = False
    """The last token was chosen by the latest step that computed this run."""
    was_found: bool = False
    ending: tuple[FinishReason, str] | None = None
    """How it ends before its next step, with a detail; None while it goes on."""

    def __post_init__(self) -> None:
        """Begin with the prompt and the tokens that the run has already."""
        self.ids = [*self.run.plan.prompt, *self.run.token_ids]
        self.speculation = Speculation(self.ids)

    @property
    def done(self) -> int:
        """The number of tokens with keys and values."""
        return self.sequence.tokens if self.sequence is not None else 0

    @property
    def rest(self) -> int:
        """The number of tokens without keys and values, at least 1 while it runs."""
        return len(self.ids) - self.done

    def guessed(self, rows: int) -> int:
        """Return how many of its next `rows` rows are those of guesses."""
        return max(0, rows - self.rest)

    @property
    def is_cancelled(self) -> bool:
        """Say whether the run ends before its next step."""
        return self.ending is not None

    def cancel(
        self,
        finish: FinishReason = FinishReason.CANCELLED,
        detail: str = "cancelled by a member",
    ) -> None:
        """End the run before its next step. Any thread may call this."""
        self.ending = finish, detail


Events = list[tuple[Job, Event]]
