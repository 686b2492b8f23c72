"""Constrained answers: grammars of forms and calls, and the tokens they allow (spec/07-host §9)."""

from model_host.grammar.grammar import Grammar, Grammars, SharedGrammars
from model_host.grammar.source import GrammarSource, may_call, source_for

__all__ = [
    "Grammar",
    "GrammarSource",
    "Grammars",
    "SharedGrammars",
    "may_call",
    "source_for",
]
