"""Which profile judges which answers of a replay (spec/07-host §10). Pure.

An answer is judged under its own profile, where this host offers it, else under one that can
say most of it. So a conversation that was answered under several profiles is replayed in as
many parts, each under one.

    Judges ─ wanted ─► load, note ─ … ─ of ─► parts_of
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from model_host.errors import ReplayTooLarge
from model_host.rendering import Renderer
from model_host.replay.case import Case, Collected
from model_host.replay.rendering import RenderedCase, render_cases
from replica.conversation import Cause, Finding, Outcome
from replica.errors import HostError
from replica.ids import Digest, EntryId
from replica.limits import REPLAY_TOKENS_MAX

_NO_PROFILE = Digest(bytes(32))


@dataclass(frozen=True, slots=True)
class Part:
    """The answers that one profile judges, with their contexts as it renders them."""

    profile: Digest
    rendered: tuple[RenderedCase, ...]


class Judges:
    """Chooses the profile that judges each answer, in the order of the offers.

    An answer of a profile that is not offered is judged by the first one that renders its
    context as sealed and has its numerics class; else by the first that renders it so; else by
    the first of all. The class of a profile is known once it was loaded, so a caller loads
    those that are asked for.
    """

    def __init__(self, collected: Collected, renderers: Mapping[Digest, Renderer]) -> None:
        """Render what has to be; `renderers` are those of the profiles offered here."""
        self._offered = tuple(renderers)
        cases = [sealed.case for sealed in collected.seals if sealed.case is not None]
        self._foreign = {c.entry: c for c in cases if c.seal.profile not in renderers}
        self._candidates: dict[EntryId, list[Digest]] = {entry: [] for entry in self._foreign}
        self._classes: dict[Digest, Digest | None] = {}
        part = collected.part(lambda case: case.entry in self._foreign)
        distinct = {id(renderer): renderer for renderer in renderers.values()}
        for each, renderer in distinct.items():
            # A profile that is the only one judges them in any case.
            fitting = _fitting(part, renderer) if len(renderers) > 1 else self._foreign
            for profile in (p for p, its in renderers.items() if id(its) == each):
                for entry in fitting:
                    self._candidates[entry].append(profile)
        for candidates in self._candidates.values():
            candidates.sort(key=self._offered.index)

    @property
    def wanted(self) -> Digest | None:
        """The next profile whose numerics class decides; None if all is known."""
        for entry, case in self._foreign.items():
            candidates = self._candidates[entry]
            stated = case.recorded.numerics_class if case.recorded is not None else None
            if len(candidates) < 2 or stated is None:  # nothing to choose by it
                continue
            for profile in candidates:
                if profile not in self._classes:
                    return profile
                if self._classes[profile] == stated:
                    break
        return None

    def note(self, profile: Digest, numerics_class: Digest | None) -> None:
        """Note the numerics class of a profile, None if it can't be loaded."""
        self._classes[profile] = numerics_class

    def of(self, case: Case) -> Digest:
        """Return the profile that judges an answer."""
        if case.entry not in self._foreign:
            return case.seal.profile
        candidates = self._candidates[case.entry] or [*self._offered]
        stated = case.recorded.numerics_class if case.recorded is not None else None
        of_class = [p for p in candidates if stated and self._classes.get(p) == stated]
        usable = [p for p in candidates if self._classes.get(p, stated) is not None]
        return (of_class or usable or candidates)[0]


def _fitting(collected: Collected, renderer: Renderer) -> list[EntryId]:
    """Return the answers whose contexts a renderer renders as their seals state.

    It looks at no more tokens than a replay may have.
    """
    found, tokens = [], 0
    with suppress(ReplayTooLarge):
        for one in render_cases(collected, renderer, _NO_PROFILE):
            tokens += len(one.context.ids)
            if tokens > REPLAY_TOKENS_MAX:
                break
            if one.problem is None:
                found.append(one.case.entry)
    return found


def parts_of(
    collected: Collected, judge_of: Callable[[Case], Digest], renderers: Mapping[Digest, Renderer]
) -> list[Part]:
    """Render the context of every answer under the profile that judges it.

    `renderers` are those of the profiles offered here, whose order the parts have. Without an
    answer the first one has an empty part. Raises ReplayTooLarge.
    """

    def is_judged_by(judge: Digest, case: Case) -> bool:
        return judge_of(case) == judge

    cases = (sealed.case for sealed in collected.seals if sealed.case is not None)
    judging = {judge_of(case) for case in cases}
    parts, tokens = [], 0
    for judge in (profile for profile in renderers if profile in judging):
        rendered = []
        part = collected.part(partial(is_judged_by, judge))
        for one in render_cases(part, renderers[judge], judge):
            rendered.append(one)
            tokens += len(one.context.ids)
            if tokens > REPLAY_TOKENS_MAX:
                raise ReplayTooLarge
        parts.append(Part(judge, tuple(rendered)))
    return parts or [Part(next(iter(renderers)), ())]


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
