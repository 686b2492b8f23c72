"""The engine of constrained answers, llguidance, within limits (spec/07-host §9). Pure.

Members write the grammars, so each is first compiled by `check` in a process of its own: the
compiler of the engine is bounded neither in time nor in stack.
"""

import json
import re

import llguidance
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from model_host.refusals import cleaned

ENGINE = f"llguidance {llguidance.__version__}"
"""Name and version, recorded in each answer that a grammar constrained."""

# Ambiguous grammars otherwise take a second per token, and 500 MB (measured with 1.9.1).
LIMITS = LLParserLimits(
    max_items_in_row=1_000,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=100_000,
    step_max_items=5_000,
    max_lexer_states=20_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
PROBLEM_CHARACTERS_MAX = 300
_WALK_TOKENS = 64


def new_matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """Compile a grammar; `problem_of` tells whether that failed."""
    return LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)


NO_TEXT = "no text has its form"
"""The problem of a grammar that no text of the tokenizer obeys."""
_PLAIN = {"NoExtensionBias": NO_TEXT}
"""What the engine says by the name of a reason alone."""
_FORCED = re.compile(r"parser error: Too many items \(limit \d+; ff_tokens\)")
"""What it says where it follows text that has no alternative, and comes to no end."""
_ENDLESS = "too many tokens follow without an alternative: the text never ends, or is too long"


def problem_of(matcher: LLMatcher) -> str:
    """Return the engine's message for a failure, cleaned and cut; empty for none."""
    if not matcher.is_error():
        return ""
    message = matcher.get_error()
    for mark in ("<state>", "<backtrace>", "<non-verbose/>"):
        message = message.partition(mark)[0]
    if _FORCED.match(message):
        return _ENDLESS
    words = cleaned(message, PROBLEM_CHARACTERS_MAX)
    return _PLAIN.get(words, words) or "no reason given"


class _Bytes:
    """A tokenizer of bytes, which needs no model: its last token ends a text."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"\xff[256]")
    special_token_ids = ()

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def check(grammar: str) -> str:
    """Compile a grammar and follow it for some bytes; return the engine's problem, or nothing.

    May run for ever, or end the process: call it where that does no harm.
    """
    matcher = new_matcher(LLTokenizer(TokenizerWrapper(_Bytes())), grammar)
    for _ in range(_WALK_TOKENS):
        if matcher.is_stopped():
            break
        mask = matcher.compute_bitmask()
        allowed = next((i for i in range(256) if mask[i // 8] >> i % 8 & 1), None)
        if allowed is None or not matcher.consume_token(allowed):
            break
    return problem_of(matcher)


def problem_of_one(grammar: str) -> str:
    """Return the problem of the first of several grammars that has one alone, behind its name.

    Such are the arguments of tools. They are compiled and not followed. Nothing where all of them
    compile. It may take longer than `check`, and end as that does.
    """
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()))
    for one in json.loads(grammar)["grammars"][1:]:
        start = {"name": "start", "lark_grammar": f"start: @{one['name']}"}
        matcher = new_matcher(tokenizer, json.dumps({"grammars": [start, one]}))
        if problem := problem_of(matcher):
            return f"{one['name']}: {problem}"
    return ""
