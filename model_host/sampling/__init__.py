"""From logits to a token: parameters, scores, weights and the draw (spec/07-host §3)."""

from model_host.sampling.recommendation import recommended
from model_host.sampling.sampler import RECIPE_DIGEST, Sampler, sampler_for
from model_host.sampling.state import Choice, Mask, SamplerState

__all__ = [
    "RECIPE_DIGEST",
    "Choice",
    "Mask",
    "Sampler",
    "SamplerState",
    "recommended",
    "sampler_for",
]
