"""Models that are offered and loaded, with their processes for templates and grammars."""

from model_host.io.profiles.grammar_checker import GrammarChecker
from model_host.io.profiles.offers import Offer, Offers, make_offer
from model_host.io.profiles.profiles import Loaded, Profiles

__all__ = [
    "GrammarChecker",
    "Loaded",
    "Offer",
    "Offers",
    "Profiles",
    "make_offer",
]
