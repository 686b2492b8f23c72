"""The tokens a grammar allows next in an answer (spec/07-host §9). Pure.

    Grammar ─ mask ─► a sampler chooses ─► advance ─ mask ─► … ─► is_over

The state follows from the tokens alone: after a crash it is rebuilt by replaying them.
Control tokens are never allowed, except those that end a turn, where the grammar may end.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from llguidance import LLTokenizer, TokenizerWrapper

from model_host.errors import GrammarFailed, ReplayTooLarge
from model_host.grammar.source import GrammarSource
from model_host.grammar_engine import NO_TEXT, new_matcher, problem_of
from model_host.refusals import GrammarInvalid, TokenizerBytesMissing
from model_host.rendering import Decoder, TurnBytes
from model_host.sampling import Mask
from replica.limits import REPLAY_GRAMMAR_BYTES_MAX


class Tokens(Decoder, Protocol):
    """The part of a tokenizer that grammars use."""

    @property
    def token_count(self) -> int:
        """Return the size of the vocabulary; every id is below it."""

    def encode(self, text: str) -> list[int]:
        """Tokenise content. Raises TokenizerBytesMissing."""


class Vocabulary:
    """A tokenizer as the engine sees it: bytes per token."""

    def __init__(self, tokenizer: Tokens, stop_ids: Iterable[int]) -> None:
        """Build the engine's index, which takes some 0.3 s."""
        words = [tokenizer.token_bytes(i) for i in range(tokenizer.token_count)]
        stops = sorted(stop_ids)
        self.backend = LLTokenizer(TokenizerWrapper(_Wrapped(tokenizer, words)), eos_token=stops)
        allowed, ends = np.array([bool(word) for word in words]), np.zeros(len(words), np.bool_)
        ends[stops] = True
        self.permitted = _words_of(allowed | ends)
        self.ends = _words_of(ends)
        self.opening = _Opening(tokenizer, words, stops)


class _Wrapped:
    """A tokenizer in the form that the engine asks for."""

    def __init__(self, tokenizer: Tokens, words: Sequence[bytes]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = 0  # replaced by the ids that end a turn
        self.bos_token_id = None
        # No text has this byte. A grammar that names a control token by its text is refused.
        self.tokens = [word or b"\xff[%d]" % i for i, word in enumerate(words)]
        self.special_token_ids = ()

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokenise text that a grammar forces, up to a byte that the vocabulary lacks."""
        whole = text.decode(errors="replace") if isinstance(text, bytes) else text
        try:
            return self._tokenizer.encode(whole)
        except TokenizerBytesMissing as error:
            lacking = set(error.bytes_missing)
            end = next(i for i, c in enumerate(whole) if lacking & set(c.encode()))
            return self._tokenizer.encode(whole[:end])


class _WrappedOpening(_Wrapped):
    """The same tokenizer, of texts with which a turn begins: a hidden space is before them."""

    def __init__(
        self, tokenizer: Tokens, words: Sequence[bytes], of_byte: Mapping[int, int]
    ) -> None:
        super().__init__(tokenizer, words)
        self._of_byte = of_byte

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokenise text that a grammar forces. Its first token alone is looked at."""
        data = text if isinstance(text, bytes) else text.encode()
        first = super().__call__(b" " + data)[:1]
        begun = self.tokens[first[0]] if first else b""
        if not data.startswith(begun):
            first, begun = [], b""
        return first + [self._of_byte[byte] for byte in data[len(begun) :]]


class _Opening:
    """The tokens that add other bytes where a turn begins with them: they lack its space."""

    def __init__(self, tokenizer: Tokens, words: Sequence[bytes], stops: list[int]) -> None:
        firsts = [TurnBytes(tokenizer).push(i) if word else word for i, word in enumerate(words)]
        changed = np.array([first != word for first, word in zip(firsts, words, strict=True)])
        of_byte = {word[0]: i for i, word in enumerate(words) if len(word) == 1}
        rests = {i: firsts[i] for i in np.flatnonzero(changed).tolist()}
        self.heard = {i: [of_byte[byte] for byte in rest] for i, rest in rests.items()}
        """Tokens of a byte each, in place of such a token."""
        self.changed = _words_of(changed)
        self.bare = _words_of(changed & np.array([not first for first in firsts]))
        if rests:
            heard = [rests.get(i, b"") for i in range(len(words))]
            for byte, token_id in of_byte.items():
                heard[token_id] = heard[token_id] or bytes([byte])
            wrapped = _WrappedOpening(tokenizer, heard, of_byte)
            self._backend = LLTokenizer(TokenizerWrapper(wrapped), eos_token=stops)

    def mask(self, source: GrammarSource) -> Mask:
        """Return those whose rest, which is not empty, may begin an answer.

        The engine is asked once for all of them: one by one, a grammar with many readings takes
        2 s. Raises GrammarInvalid.
        """
        words = np.zeros_like(self.changed)
        if self.heard:
            matcher = new_matcher(self._backend, source.text)
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if problem := problem_of(matcher):
                if problem != NO_TEXT:
                    raise GrammarInvalid(problem)
                return np.zeros_like(words)
        return words & self.changed & ~self.bare


class Grammar:
    """The state of one answer."""

    def __init__(
        self, source: GrammarSource, vocabulary: Vocabulary, continued: Sequence[int] = ()
    ) -> None:
        """Compile `source`, and replay the tokens that the answer continues.

        Raises GrammarInvalid.
        """
        self._permitted, self._ends = vocabulary.permitted, vocabulary.ends
        self._opening, self._has_begun = vocabulary.opening, False
        self._matcher = new_matcher(vocabulary.backend, source.text)
        if problem := problem_of(self._matcher):
            raise GrammarInvalid(problem)
        self._opened = self._opening.mask(source)
        self._go_on(continued)

    def behind(self, continued: Sequence[int]) -> Self:
        """Return the state of another answer that goes on behind tokens; this one has none.

        What was compiled is shared. Raises GrammarInvalid.
        """
        other = copy(self)
        other._matcher = self._matcher.deep_copy()
        other._go_on(continued)
        return other

    def _go_on(self, continued: Sequence[int]) -> None:
        heard = [token_id for each in continued for token_id in self._heard(each)]
        if not self._matcher.consume_tokens(heard):
            raise GrammarInvalid("the answer so far, which this one continues, has another form")

    def _heard(self, token_id: int) -> Sequence[int]:
        """Return the tokens with the bytes that the next token of the turn adds to its text."""
        is_first, self._has_begun = not self._has_begun, True
        return self._opening.heard.get(token_id, (token_id,)) if is_first else (token_id,)

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete, and no token may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def mask(self) -> Mask:
        """Return the ids allowed next, one bit each. Raises GrammarFailed."""
        words = np.empty_like(self._permitted)
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._check()
        words &= self._permitted
        # A grammar may name an id that ends a turn where it does not end itself.
        if (words & self._ends).any() and not self.is_accepting:
            words &= ~self._ends
        if not self._has_begun:
            bare = self._opening.bare if (words & ~self._ends).any() else 0
            words = (words & ~self._opening.changed) | self._opened | bare
        if not words.any():
            raise GrammarFailed("No token of the vocabulary can follow.")
        return words

    def advance(self, token_id: int) -> None:
        """Add a token, chosen now or replayed. Raises GrammarFailed for one not allowed."""
        for heard in self._heard(token_id):
            self._matcher.consume_token(heard)
        self._check()

    def _check(self) -> None:
        if problem := problem_of(self._matcher):
            raise GrammarFailed(problem)


class Grammars:
    """The grammars of one tokenizer, whose index is built at the first use."""

    def __init__(self, tokenizer: Tokens, stop_ids: Iterable[int]) -> None:
        """Compile for `tokenizer`, whose tokens `stop_ids` end a turn."""
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self._tokenizer, self._stop_ids)

    def compile(self, source: GrammarSource, continued: Sequence[int] = ()) -> Grammar:
        """Return the state of an answer that goes on behind the tokens `continued`.

        May run for ever for a source that no process has compiled before (DECISIONS D160).
        Raises GrammarInvalid.
        """
        return Grammar(source, self._vocabulary, continued)


class SharedGrammars:
    """The grammars of many answers that are checked together, each compiled once.

    An answer keeps its state to its end, and what is compiled has up to 130 times the bytes of
    its text. So the texts are bounded.
    """

    def __init__(self, grammars: Grammars) -> None:
        """Compile with `grammars`."""
        self._grammars = grammars
        self._compiled: dict[GrammarSource, Grammar] = {}
        self._bytes = 0

    def check_room(self, source: GrammarSource) -> None:
        """Raise ReplayTooLarge for one that does not fit beside those compiled already."""
        size = len(source.text) if source not in self._compiled else 0
        if self._bytes + size > REPLAY_GRAMMAR_BYTES_MAX:
            raise ReplayTooLarge(
                f"the grammars of these answers have more than {REPLAY_GRAMMAR_BYTES_MAX:,} bytes;"
                " replay from a later entry"
            )

    def compile(self, source: GrammarSource, continued: Sequence[int] = ()) -> Grammar:
        """Return the state of one answer; see `Grammars.compile`."""
        if source not in self._compiled:
            self._compiled[source] = self._grammars.compile(source)
            self._bytes += len(source.text)
        return self._compiled[source].behind(continued)


def _words_of(allowed: npt.NDArray[np.bool_]) -> Mask:
    padded = np.zeros(-(-len(allowed) // 32) * 32, np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.dtype("<i4")).astype(np.int32)
