"""The contexts of a replay, rendered from the log alone (spec/07-host §10). Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from model_host.errors import ReplayTooLarge
from model_host.generation import rendering_of
from model_host.refusals import BodyUnavailable, GenerationRefused, TemplateUnsupported
from model_host.rendering import Context, Renderer
from model_host.replay.case import Case, Collected, SealedContext
from replica.conversation import Cause
from replica.ids import Digest, EntryId, short
from replica.limits import REPLAY_TOKENS_MAX


@dataclass(frozen=True, slots=True)
class Unequal:
    """A context that is not the one its seal states; `entry` is where it differs first."""

    cause: Cause
    entry: EntryId
    detail: str


@dataclass(frozen=True, slots=True)
class RenderedCase:
    """An answer with its context as rendered here; a problem means that no token is checked."""

    case: Case
    context: Context
    problem: Unequal | None = None


class _Added:
    """The tokens that seals add to contexts, where also those of refused contexts count.

    These take as much time as others, and are in no context that is counted in the end.
    """

    def __init__(self) -> None:
        self._tokens = self._behind = self._most = 0

    def begin(self, tokens: int) -> None:
        """Begin to render behind a context of at least so many tokens."""
        self._tokens += self._most - self._behind
        self._behind = self._most = tokens

    def check(self, tokens: int, *, is_all: bool = False) -> None:  # noqa: ARG002  # as Bound has it
        """Raise ReplayTooLarge if all seals together add too many."""
        self._most = max(self._most, tokens)
        if self._tokens + self._most - self._behind > REPLAY_TOKENS_MAX:
            raise ReplayTooLarge


def render_cases(
    collected: Collected, renderer: Renderer, profile: Digest
) -> Iterator[RenderedCase]:
    """Render every context of a conversation; yield those whose answers are checked.

    `profile` is the digest of this host's profile: a seal of that profile must state the very
    same rendering. Raises ReplayTooLarge, and HostError where rendering fails here and now, which
    judges no answer.
    """
    children = Counter(sealed.parent for sealed in collected.seals)
    contexts: dict[EntryId | None, Context | GenerationRefused] = {None: renderer.empty}
    added = _Added()
    for sealed in collected.seals:
        base = contexts[sealed.parent]
        children[sealed.parent] -= 1
        if not children[sealed.parent] and sealed.parent is not None:
            del contexts[sealed.parent]
        is_ours = sealed.seal.profile == profile
        context, problem = _extend(sealed, base, renderer, added, is_ours=is_ours)
        if children[sealed.seal_id]:
            contexts[sealed.seal_id] = context
        if sealed.case is not None:
            known = context if isinstance(context, Context) else renderer.empty
            yield RenderedCase(sealed.case, known, problem)


def _extend(
    sealed: SealedContext,
    base: Context | GenerationRefused,
    renderer: Renderer,
    added: _Added,
    *,
    is_ours: bool,
) -> tuple[Context | GenerationRefused, Unequal | None]:
    """Render one seal's entries behind its parent's context; compare with its statements."""
    try:
        if isinstance(base, GenerationRefused):
            raise base
        if isinstance(sealed.listing, BodyUnavailable):
            raise sealed.listing
        added.begin(renderer.least_tokens(base))
        rendered = renderer.extend(base, (sealed.listing,), added)
    except BodyUnavailable as error:
        entry = EntryId(error.missing[0]) if error.missing else sealed.seal_id
        return error, Unequal(Cause.PART_MISSING, entry, f"the body of {short(entry)} is missing")
    except GenerationRefused as error:
        # A limit is of this host: another one of the same profile may render within its own.
        is_limit = isinstance(error, TemplateUnsupported) and error.is_costly
        cause = _cause(is_ours and not is_limit)
        return error, Unequal(cause, sealed.seal_id, f"{error.reason}: {error.detail}")
    seal = sealed.seal
    here = rendering_of(seal.entries, rendered)
    if here == (seal.render_digest, seal.tokens_per_entry, seal.projections):
        return rendered.context, None
    _, counts, _ = here
    pairs = zip(seal.entries, counts, seal.tokens_per_entry, strict=False)
    entry = next((i for i, ours, stated in pairs if ours != stated), sealed.seal_id)
    detail = f"rendered here, the context has {len(rendered.context.ids)} tokens of other content"
    return rendered.context, Unequal(_cause(is_ours), entry, detail)


def _cause(is_ours: bool) -> Cause:
    return Cause.RENDERING if is_ours else Cause.OTHER_TEMPLATE
