"""Guesses of the next tokens, looked up in earlier ones (spec/07-host §5). Pure.

    guess ─► rows of the next step ─► a sampler chooses at each, while it agrees ─► note

An answer often repeats parts of its context: names, code, quotations. The last tokens are
searched for among all earlier ones, and the tokens that followed there are guessed. A guess
changes no output: the sampler chooses every token, from the logits that the model has after
the tokens before it. The rows behind a wrong guess are discarded.
"""

from collections.abc import Sequence

GUESSES_MAX = 7
"""Most guesses of one run in a step: with its last token they fill 8 rows of the engine."""
SEQUENCES_GUESSED_MAX = 4
"""Most sequences of a step with guesses: rows cost too much beside more."""
MATCH_MIN = 2
MATCH_MAX = 4
"""Last tokens that are compared. A longer match is hardly a better one."""
PLACES_MAX = 16
"""Most earlier places that are compared for one guess."""

_RATE_FIRST = 0.5
_WEIGHT = 0.0625
"""Weight of a new guess in the average."""


class Speculation:
    """The guesses of one run, and the measured rates of right ones."""

    def __init__(self, ids: Sequence[int]) -> None:
        """Guess what follows `ids`, which the caller extends."""
        self.guesses: tuple[int, ...] = ()
        """The tokens guessed for the next step; none where they do not pay."""
        self._lookup = Lookup(ids)
        self._rates = dict.fromkeys(range(MATCH_MIN, MATCH_MAX + 1), _RATE_FIRST)
        self._match = 0
        self._first: int | None = None

    def guess(self, most: int, *, row_cost: float, sequences: int) -> None:
        """Guess up to `most` tokens, as many as pay in a step of so many `sequences`.

        `row_cost` is the time of one more row, in units of a step without guesses.
        """
        self._match, found = self._lookup.find(most)
        self._first = found[0] if found else None
        paying = worthwhile(self._rates.get(self._match, 0.0), row_cost, sequences)
        self.guesses = found[:paying]

    def drop(self) -> None:
        """Compute no guesses in the next step."""
        self.guesses = ()

    def note(self, chosen: Sequence[int]) -> None:
        """Record the tokens that were chosen behind a guess, before the next guess.

        The first guess is judged even where it was not computed, so a run whose guesses
        become better guesses again.
        """
        first = (self._first,) if self._first is not None else ()
        for guess, token_id in zip(self.guesses or first, chosen, strict=False):
            rate = self._rates[self._match]
            self._rates[self._match] = rate + _WEIGHT * ((guess == token_id) - rate)
        self.guesses, self._first = (), None


def worthwhile(rate: float, row_cost: float, sequences: int) -> int:
    """Return the number of guesses that pay, where each is right with probability `rate`.

    A step takes 1 without guesses, and each of its sequences gets a token. A guess adds
    `row_cost` to the time, and pays while it raises the number of tokens per time.
    """
    count, chance, tokens, time = 0, rate, float(sequences), 1.0
    while count < GUESSES_MAX and chance * time > row_cost * tokens:
        count, tokens, time, chance = count + 1, tokens + chance, time + row_cost, chance * rate
    return count


class Lookup:
    """The earlier places of the last tokens of a growing list.

    Each token is entered once, at a constant cost.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        """Search in `ids`, which the caller extends."""
        self._ids = ids
        self._last: dict[tuple[int, int], int] = {}
        """The position behind the last place of each pair of tokens."""
        self._earlier = [0] * MATCH_MIN
        """For the pair before each position, the position behind its place before; 0 for none."""

    def find(self, count: int) -> tuple[int, tuple[int, ...]]:
        """Return the length of the longest match, and `count` tokens that follow it.

        Both are 0 and empty where there is none. Of equal matches the latest counts. Where it
        ends with the list, the list is taken to repeat itself.
        """
        if count < 1:
            return 0, ()
        self._enter()
        ids, end = self._ids, len(self._ids)
        best, longest = 0, 0
        place = self._earlier[end] if end >= MATCH_MIN else 0
        for _ in range(PLACES_MAX):
            if not place or longest == MATCH_MAX:
                break
            length = self._match(place)
            if length > longest:
                best, longest = place, length
            place = self._earlier[place]
        if not best:
            return 0, ()
        return longest, tuple(ids[best + i % (end - best)] for i in range(count))

    def _enter(self) -> None:
        """Enter the tokens that are new."""
        ids, earlier, last = self._ids, self._earlier, self._last
        for end in range(len(earlier), len(ids) + 1):
            pair = (ids[end - 2], ids[end - 1])
            earlier.append(last.get(pair, 0))
            last[pair] = end

    def _match(self, place: int) -> int:
        """Return how many tokens before a place equal the last ones; the pair does."""
        ids, end = self._ids, len(self._ids)
        length = MATCH_MIN
        while length < min(MATCH_MAX, place) and ids[place - 1 - length] == ids[end - 1 - length]:
            length += 1
        return length
