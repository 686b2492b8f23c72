"""Which tokens the next step computes (spec/07-host §5).

Pure. A step has at most CHUNK_TOKENS rows. Sequences that decode get their rows first,
so that readers wait for one step only. The rest goes to prompts, which are computed in
chunks beside them. Where not all fit, owners take turns, then the sequences of an owner.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from model_host.engine_api import CHUNK_TOKENS

SEQUENCES_MAX = 32
"""Most sequences of one step."""


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Demand(Generic[Key]):
    """The rows that one sequence could compute next."""

    key: Key
    owner: bytes
    rows: int
    """At least 1: the rest of the prompt, or the last token."""
    is_decoding: bool


@dataclass(frozen=True, slots=True)
class Share(Generic[Key]):
    """The rows of one sequence in a step."""

    key: Key
    rows: int


class StepPlanner(Generic[Key]):
    """Shares steps between sequences; remembers how long ago each was served."""

    def __init__(self, sequences_max: int = SEQUENCES_MAX) -> None:
        """Put at most `sequences_max` sequences, at least 2, into a step."""
        assert sequences_max > 1, "a prompt and a sequence that decodes fit into one step"
        self._sequences_max = sequences_max
        self._step = 0
        self._served: dict[Key, int] = {}
        self._owner_served: dict[bytes, int] = {}

    def plan(self, demands: Iterable[Demand[Key]], *, prompt_rows_max: int) -> list[Share[Key]]:
        """Return the shares of the next step, at least one unless there are no demands.

        `prompt_rows_max`, at least 1, bounds the rows of prompts while other sequences
        decode, so that the step does not take much longer than without them.
        """
        asked = list(demands)
        self._step += 1
        self._forget_all_but(asked)
        prompts = [demand for demand in asked if not demand.is_decoding]
        # If more decode than fit, one place is kept for a prompt, so that none waits for ever.
        kept = 1 if prompts else 0
        shares = self._share(
            [demand for demand in asked if demand.is_decoding],
            CHUNK_TOKENS - kept,
            self._sequences_max - kept,
        )
        left = CHUNK_TOKENS - sum(share.rows for share in shares)
        if shares:
            left = min(left, prompt_rows_max)
        return shares + self._share(prompts, left, self._sequences_max - len(shares))

    def _share(self, demands: list[Demand[Key]], rows: int, places: int) -> list[Share[Key]]:
        """Share `rows` and `places`: owners take turns, then the sequences of an owner."""
        shares: list[Share[Key]] = []
        here: Counter[bytes] = Counter()

        def turn(demand: Demand[Key]) -> tuple[int, int, int]:
            owner = demand.owner
            owner_served = self._owner_served.get(owner, 0) if not here[owner] else 0
            return here[owner], owner_served, self._served.get(demand.key, 0)

        while demands and rows and len(shares) < places:
            demand = min(demands, key=turn)
            demands.remove(demand)
            share = Share(demand.key, min(demand.rows, rows))
            shares.append(share)
            rows -= share.rows
            here[demand.owner] += 1
            self._served[demand.key] = self._step
        for demand_owner in here:
            self._owner_served[demand_owner] = self._step
        return shares

    def _forget_all_but(self, demands: Iterable[Demand[Key]]) -> None:
        keys, owners = {d.key for d in demands}, {d.owner for d in demands}
        self._served = {key: step for key, step in self._served.items() if key in keys}
        self._owner_served = {o: step for o, step in self._owner_served.items() if o in owners}
