"""Answers of the host's pure functions to `host_questions`."""

from typing import Any

import numpy as np

from model_host.kv import Lineage, Namespace, domain_salt
from model_host.sampling import Sampler
from tests.support.sampling import mask_as_given, sampled, state_as_given

Json = dict[str, Any]


def answer(question: Json) -> Json:
    """Return the answer to one question."""
    match question["ask"]:
        case "draw":
            return _draw(question)
        case "sampler":
            logits = np.frombuffer(bytes.fromhex(question["logits"]), "<f4")
            weights, token, recorded = sampled(Sampler(), logits, question)
            return {"weights": weights, "token": token, "recorded": recorded}
        case "namespace":
            raw = {field["name"]: bytes.fromhex(field["value"]) for field in question["fields"]}
            kinds = Namespace.__annotations__
            values = {n: v if kinds[n] is bytes else v.decode() for n, v in raw.items()}
            return {"digest": Namespace(**values).digest.hex()}  # type: ignore[arg-type]
        case "salt":
            readers = question["readers"]
            keys = None if readers is None else [bytes.fromhex(reader) for reader in readers]
            salt = domain_salt(bytes.fromhex(question["owner_salt"]), keys)
            return {"domain_salt": salt.hex()}
        case _:
            lineage = Lineage(bytes.fromhex(question["namespace"]), question["token_ids"])
            return {"keys": [lineage.at(at["tokens"]).hex() for at in question["keys"]]}


def _draw(question: Json) -> Json:
    given = question | {"logprobs": 0}
    logits = np.frombuffer(bytes.fromhex(question["logits"]), "<f4")
    scores = state_as_given(given).scores(logits, mask_as_given(given))
    kept, token, _ = sampled(Sampler(), logits, given)
    return {"scores": scores.astype("<f4").tobytes().hex(), "kept": kept, "token": token}
