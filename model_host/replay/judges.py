"""Which profile judges which answers of a replay (spec/07-host §10). Pure.

An answer is judged under its own profile, where this host offers it. So a conversation that
was answered under several profiles is replayed in as many parts, each under one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from model_host.errors import ReplayTooLarge
from model_host.rendering import Renderer
from model_host.replay.case import Case, Collected
from model_host.replay.rendering import RenderedCase, render_cases
from replica.conversation import Cause, Finding, Outcome
from replica.errors import HostError
from replica.ids import Digest
from replica.limits import REPLAY_TOKENS_MAX


@dataclass(frozen=True, slots=True)
class Part:
    """The answers that one profile judges, with their contexts as it renders them."""

    profile: Digest
    rendered: tuple[RenderedCase, ...]


def parts_of(
    collected: Collected, default: Digest, renderers: Mapping[Digest, Renderer]
) -> list[Part]:
    """Render the context of every answer under the profile that judges it.

    `renderers` are those of the profiles offered here. The part of `default` has the answers
    of all other profiles, and comes first, even without any. Raises ReplayTooLarge.
    """

    def judge_of(case: Case) -> Digest:
        return case.seal.profile if case.seal.profile in renderers else default

    def is_judged_by(judge: Digest, case: Case) -> bool:
        return judge_of(case) == judge

    cases = (sealed.case for sealed in collected.seals if sealed.case is not None)
    parts, tokens = [], 0
    for judge in dict.fromkeys((default, *map(judge_of, cases))):
        rendered = []
        part = collected.part(partial(is_judged_by, judge))
        for one in render_cases(part, renderers[judge], judge):
            rendered.append(one)
            tokens += len(one.context.ids)
            if tokens > REPLAY_TOKENS_MAX:
                raise ReplayTooLarge
        parts.append(Part(judge, tuple(rendered)))
    return parts


def unjudged(rendered: RenderedCase, error: HostError) -> Finding:
    """Return the finding of an answer whose profile can't be loaded here: `error` says why.

    OTHER_WEIGHTS is the nearest cause that the protocol has: what could judge it is not here.
    """
    case, recorded = rendered.case, rendered.case.recorded
    return Finding(
        answer=case.entry,
        seal=case.seal_id,
        render_digest=rendered.context.digest,
        outcome=Outcome.UNDECIDED,
        cause=Cause.OTHER_WEIGHTS,
        detail=f"{error.reason}: {error.detail}",
        prompt_tokens=len(rendered.context.ids),
        output_tokens=len(recorded.token_ids) if recorded is not None else 0,
    )
