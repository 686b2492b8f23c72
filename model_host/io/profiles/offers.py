"""The profiles a host offers, known from the headers of their models (spec/07-host §1).

No weights are read but for their digest, so a host describes all of its profiles before it
has loaded any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import structlog

from model_host import sampling
from model_host.engine import ModelFile, Tokenizer, naming, open_model
from model_host.grammar import Grammars
from model_host.grammar_engine import ENGINE
from model_host.io.fetch import known_name
from model_host.io.profiles.template_runner import TemplateRunner
from model_host.profiles import Profile, context_tokens_max, kv_bytes_min, weights_bytes
from model_host.refusals import (
    ProfileUnavailable,
    ProfileUnknown,
    SamplingInvalid,
    TemplateUnsupported,
)
from model_host.rendering import (
    RECIPE_DIGEST,
    Contexts,
    Renderer,
    Room,
    Template,
    TemplateReport,
    check_template,
)
from model_host.sampling import recommended
from replica.errors import with_step
from replica.ids import Digest, short
from replica.limits import HOST_PROFILES_MAX
from replica.link import ProfileInfo, listed_profiles, profile_names
from replica.log import Sampling
from replica.order import SealNode
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a profile comes from: a model's path, and the number formats to run it in."""

    path: Path
    numerics: str

    def __str__(self) -> str:
        """Return it as `--model` takes it."""
        return f"{self.path}@{self.numerics}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A profile this host runs requests with, loaded or not."""

    profile: Profile
    renderer: Renderer = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    stop_ids: frozenset[int]
    grammars: Grammars = field(repr=False)
    runner: TemplateRunner = field(repr=False)
    """What runs its template."""
    source: Source
    weights_bytes: int
    """About the memory of its weights."""
    sampling: Sampling | None = None
    """The sampling that its makers recommend."""
    contexts: Contexts = field(default_factory=Contexts, repr=False)
    """The contexts it rendered last: another profile may render the same seal otherwise."""

    @property
    def room(self) -> Room:
        """The tokens that its contexts can hold."""
        return Room(self.profile.context_tokens_max)

    @property
    def info(self) -> ProfileInfo:
        """The description for hubs and clients."""
        return replace(self.profile.info, sampling=self.sampling)


_TWICE_STEP = (
    "Leave out one of the two `--model`, or give it other numerics: `@q4`, `@bf16` or `@fp32`."
)
_CHAT_STEP = "Choose a model that is tuned for chat; the names of many end with Instruct or Chat."
_GONE_STEP = "Ask again, without a profile or with one of these: the answer goes on from here."


class Offers:
    """The profiles of a host; the first is its default."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        """Offer these, at least one. Raises ArgumentInvalid for too many, or two that are equal."""
        assert offers, "a host has a default"
        if len(offers) > HOST_PROFILES_MAX:
            raise ArgumentInvalid(
                f"models: {len(offers)}; a host offers {HOST_PROFILES_MAX} at most"
            )
        self._by_digest: dict[Digest, Offer] = {}
        for offer in offers:
            first = self._by_digest.setdefault(offer.profile.digest, offer)
            if first is not offer:
                pair = f"{first.source} and {offer.source}"
                error = ArgumentInvalid(f"model: {pair} are the same profile, given twice")
                raise with_step(error, _TWICE_STEP)
        self.all = tuple(offers)
        self.default = offers[0]

    @property
    def infos(self) -> tuple[ProfileInfo, ...]:
        """The descriptions for hubs and clients, the default first."""
        return tuple(offer.info for offer in self.all)

    def name_of(self, offer: Offer) -> str:
        """Return the name to show for a profile, which no other of this host has."""
        return profile_names(self.infos)[self.all.index(offer)]

    def get(self, digest: Digest) -> Offer | None:
        """Return the offer with this digest, if there is one."""
        return self._by_digest.get(digest)

    def of_seal(self, node: SealNode | None) -> Offer:
        """Return the offer of a seal's profile; the default for another one, or no seal."""
        return (self.get(node.seal.profile) if node is not None else None) or self.default

    def choose(self, wanted: Digest | None) -> Offer:
        """Return the offer that a request names, or the default. Raises ProfileUnknown."""
        if wanted is None:
            return self.default
        offer = self.get(wanted)
        if offer is None:
            names = listed_profiles(self.infos)
            raise ProfileUnknown(f"no profile {short(wanted)} here; this host offers {names}")
        return offer

    def of_begun(self, sealed: Digest) -> Offer:
        """Return the offer under which an answer began. Raises ProfileUnknown."""
        offer = self.get(sealed)
        if offer is None:
            names = listed_profiles(self.infos)
            began = f"the answer began under the profile {short(sealed)}"
            error = ProfileUnknown(f"{began}; this host offers {names} now")
            raise with_step(error, _GONE_STEP)
        return offer


def make_offer(file: ModelFile, *, numerics: str, context_tokens: int, kv_bytes: int) -> Offer:
    """Read tokenizer and template of a model and pin everything by digest.

    Its context is that of the model, `context_tokens` or what `kv_bytes` hold, whichever is
    least. Raises TokenizerUnknown, TemplateUnsupported, or ArgumentInvalid where the memory
    holds no context.
    """
    with naming(file.path):
        tokenizer = Tokenizer.shared(file.tokenizer)
    bos_token = _text(file.tokenizer.tokens, file.tokenizer.bos_id)
    eos_token = _text(file.tokenizer.tokens, file.tokenizer.eos_id)
    renderer, report, runner = _checked(_template(file), bos_token, eos_token, tokenizer)
    if not (report.append_only and report.sentinels_equal_plain):
        log.warning(
            "template rewrites history",
            append_only=report.append_only,
            sentinels_equal_plain=report.sentinels_equal_plain,
        )
    log.info(
        "template",
        local=renderer.is_local,
        system_turns=renderer.turns.has_system,
        tools=renderer.turns.format.name,
    )
    limit = context_tokens_max(file.config, numerics, limit=context_tokens, kv_bytes=kv_bytes)
    if limit < 1:
        least = kv_bytes_min(file.config, numerics)
        none = f"{kv_bytes:,} bytes hold no context of {file.name}, which needs {least:,}"
        raise ArgumentInvalid(f"kv_bytes_max: {none}")
    profile = Profile(
        known_name(file.sha256) or file.name,
        Digest(file.sha256),
        tokenizer.digest,
        renderer.template.digest,
        RECIPE_DIGEST,
        sampling.RECIPE_DIGEST,
        numerics,
        limit,
        has_tools=renderer.turns.has_system,
        grammar_engine=ENGINE,
    )
    ends = tokenizer.turn_ends
    return Offer(
        profile,
        renderer,
        tokenizer,
        ends,
        Grammars(tokenizer, ends),
        runner,
        Source(file.path, numerics),
        weights_bytes(file.config, numerics),
        _recommended(file),
    )


def _template(file: ModelFile) -> str:
    """Return the chat template of a model. Raises TemplateUnsupported where it has none."""
    if not file.template:
        raise with_step(TemplateUnsupported(f"{file.path} has no chat template"), _CHAT_STEP)
    return file.template


@lru_cache(maxsize=HOST_PROFILES_MAX)
def _checked(
    source: str, bos_token: str, eos_token: str, tokenizer: Tokenizer
) -> tuple[Renderer, TemplateReport, TemplateRunner]:
    """Return what renders with a template, for all profiles of a model, its report and process.

    The template runs in a process of its own. Raises TemplateUnsupported.
    """
    runner = TemplateRunner(source, bos_token=bos_token, eos_token=eos_token)
    template = Template(source, bos_token=bos_token, eos_token=eos_token, run=runner.render)
    try:
        report = check_template(template, tokenizer)
        renderer = Renderer.load(template, tokenizer)
    finally:
        runner.loaded()
    return renderer, report, runner


def _recommended(file: ModelFile) -> Sampling | None:
    """Return the recommended sampling; one that can't be used is logged."""
    try:
        return recommended(Digest(file.sha256), file.sampling)
    except SamplingInvalid as error:
        log.warning("recommended sampling not used", model=file.name, detail=error.detail)
        return None


def reopen(offer: Offer) -> ModelFile:
    """Open the model of an offer again.

    Raises ModelFileError, or ProfileUnavailable if it is another one now.
    """
    file = open_model(offer.source.path)
    if file.sha256 != offer.profile.weights_digest:
        log.warning("the model is another file than at the start of the host", path=str(file.path))
        name = offer.profile.name
        raise ProfileUnavailable(f"{name}: its model is another file than at the start of the host")
    return file


def _text(tokens: Sequence[str], token_id: int | None) -> str:
    return tokens[token_id] if token_id is not None else ""
