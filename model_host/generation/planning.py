"""From a request whose turn has come to its seal and prompt (spec/07-host §4 steps 3 and 4).

Pure. `gather` reads the conversation and returns immutable values, so that `plan` may run
in another thread while entries are admitted. The caller compares the request's `standing`
before and after, and appends the seal only where both are the same.

    gather ─► Gathered ─► plan ─► Plan, or a refusal
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain

from model_host.grammar import GrammarSource, source_for
from model_host.profiles import Profile
from model_host.refusals import (
    BodyUnavailable,
    ObligationsOpen,
    ProfileUnknown,
    SealTooLarge,
    TokensForeign,
)
from model_host.rendering import Context, ContextItem, Contexts, Listing, Rendered, Renderer, Room
from replica import limits
from replica.conversation import Asked, Conversation, Sealable, sealable
from replica.ids import SALT_BYTES, ConversationId, Digest, EntryId, short
from replica.log import Generation, Projected, Request, Seal, codec
from replica.order import SealNode


@dataclass(frozen=True, slots=True)
class Branch:
    """A context to render: the listings behind the last seal whose context is kept."""

    seals: tuple[EntryId, ...]
    """The seal of `base`, if there is one, and of each listing but one to be sealed."""
    base: Context | None
    listings: tuple[Listing, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in a context: its seal, and the render digest stated there."""

    entry: EntryId
    seal: EntryId
    render_digest: Digest


@dataclass(frozen=True, slots=True)
class Gathered:
    """The part of a conversation that a plan needs; nothing in it changes."""

    conversation: ConversationId
    request_id: EntryId
    request: Request
    prev_seal: EntryId | None
    entries: tuple[EntryId, ...]
    membership_heads: tuple[EntryId, ...]
    context_digest: Digest
    branch: Branch
    answers: tuple[Answer, ...]
    """The answers that the branch's listings hold."""
    others: Mapping[EntryId, Branch]
    """The contexts of answers whose seals are not on the branch."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that can be answered: its seal, and the tokens behind it."""

    conversation: ConversationId
    request_id: EntryId
    request: Request
    seal: Seal
    context: Context
    output_tokens_max: int
    grammar: GrammarSource | None = None
    """The grammar of the answer; none for free text."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens of the context."""
        return self.context.ids

    @property
    def draw_offset(self) -> int:
        """The number of output tokens of the same assistant turn before this request."""
        return self.context.continued_tokens

    @property
    def continued(self) -> tuple[int, ...]:
        """The tokens of the turn that this request continues; none if it opens one."""
        return self.prompt[len(self.prompt) - self.draw_offset :]


# --- reading the conversation -----------------------------------------------------------


def gather(held: Conversation, ready: Sealable, contexts: Contexts) -> Gathered:
    """Collect what a plan needs for a request whose turn has come.

    Raises BodyUnavailable for a missing body, and SealTooLarge.
    """
    request = held.order.request(ready.request)
    if request is None:
        raise BodyUnavailable(missing=(ready.request,))
    if len(ready.entries) > limits.SEAL_ENTRIES_MAX:
        raise SealTooLarge(f"{len(ready.entries)} entries, at most {limits.SEAL_ENTRIES_MAX}")
    branch = gather_branch(held, ready.parent, contexts, ready.entries, ready.membership_heads)
    answers = tuple(_answers(held, branch))
    elsewhere = {answer.seal for answer in answers} - {*branch.seals}
    others = {i: gather_branch(held, held.order.nodes[i], contexts) for i in elsewhere}
    return Gathered(
        held.id,
        ready.request,
        request,
        _id_of(ready.parent),
        ready.entries,
        ready.membership_heads,
        ready.context_digest,
        branch,
        answers,
        others,
    )


def gather_branch(
    held: Conversation,
    node: SealNode | None,
    contexts: Contexts,
    entries: Sequence[EntryId] = (),
    heads: tuple[EntryId, ...] = (),
    *,
    asks: bool = True,
) -> Branch:
    """Collect the context up to a seal, and the `entries` of a seal to be written behind it.

    `heads` are the membership heads of that seal. `asks`: the last entry is its request.

    Raises BodyUnavailable.
    """
    base, behind = None, []
    while node is not None:
        base = contexts.get(node.id)
        if base is not None:
            break
        behind.append(node)
        node = node.parent
    behind.reverse()
    listings = [listing_of(held, each.seal.entries, each.seal.membership_heads) for each in behind]
    if entries:
        listings.append(listing_of(held, entries, heads, asks=asks))
    seals = (*([node.id] if node is not None else []), *(each.id for each in behind))
    return Branch(seals, base, tuple(listings))


def listing_of(
    held: Conversation,
    entries: Sequence[EntryId],
    heads: tuple[EntryId, ...],
    *,
    asks: bool = True,
    items: MutableMapping[tuple[EntryId, bool], ContextItem] | None = None,
) -> Listing:
    """Collect the entries that a seal lists; `heads` are its membership heads.

    Without `asks`, its request is still to come, and is none of them. Seals of one conversation
    that are read at one moment share their `items`.

    Raises BodyUnavailable.
    """
    known = items if items is not None else {}
    listed = []
    for entry_id in entries:
        key = entry_id, asks and entry_id == entries[-1]
        if key not in known:
            known[key] = _item(held, entry_id, is_final=key[1])
        listed.append(known[key])
    # By the heads that the seal names, so that every host renders its list alike.
    return Listing(tuple(listed), held.log.roster.at(heads).owner_keys())


def _item(held: Conversation, entry_id: EntryId, *, is_final: bool) -> ContextItem:
    """Return an entry as a seal lists it. Raises BodyUnavailable."""
    body = held.log.body(entry_id)
    if body is None and not held.log.is_malformed(entry_id):
        raise BodyUnavailable(missing=(entry_id,))
    header = held.log.entries[entry_id].header
    answered = _answered(held, header.parents[0]) if isinstance(body, Generation) else None
    return ContextItem(entry_id, body, is_final, header.parents, header.author, answered)


def _answered(held: Conversation, seal: EntryId) -> Asked:
    """Return the keys behind the request that the answer to a seal answers."""
    request_id = held.order.nodes[seal].seal.request
    request = held.order.request(request_id)
    assert request is not None, "a seal that counts names a request"
    return Asked.of(held.log.entries[request_id].header.author, request)


def _answers(held: Conversation, branch: Branch) -> Iterable[Answer]:
    for item in chain.from_iterable(listing.items for listing in branch.listings):
        if isinstance(item.body, Generation) and item.body.token_ids:
            node = held.order.nodes[item.parents[0]]
            yield Answer(item.entry, node.id, node.seal.render_digest)


@dataclass(frozen=True, slots=True)
class Standing:
    """The values on which the seal of a request depends, at one moment."""

    prev_seal: EntryId | None
    entries: tuple[EntryId, ...]
    membership_heads: tuple[EntryId, ...]
    context_digest: Digest


def standing(held: Conversation, request_id: EntryId) -> Standing | None:
    """Return where a request stands now, None if it can't be sealed or is cancelled.

    Where it differs before and after a plan was made, entries admitted meanwhile have
    cancelled the request, or changed its place or the membership: the plan is void. Other
    entries change nothing, since a later seal lists them.
    """
    ready = sealable(held, request_id)
    if ready is None or held.order.is_cancelled(request_id):
        return None
    return Standing(
        _id_of(ready.parent), ready.entries, ready.membership_heads, ready.context_digest
    )


def _id_of(node: SealNode | None) -> EntryId | None:
    return node.id if node is not None else None


# --- planning -----------------------------------------------------------------------------


def plan(gathered: Gathered, *, profile: Profile, renderer: Renderer) -> Plan:
    """Check a request whose turn has come, render its context and build its seal.

    Raises a GenerationRefused, which the host logs as a refused generation.
    """
    request = gathered.request
    if request.profile not in (None, profile.digest):
        raise ProfileUnknown
    room = Room(profile.context_tokens_max)
    rendered = render_branch(gathered.branch, renderer, room)
    context = rendered.context
    open_calls = context.place.ledger.open_calls
    if open_calls:
        raise ObligationsOpen(f"open tool calls: {', '.join(open_calls)}")
    _check_answers(gathered, rendered, renderer, room)
    limit = output_limit(request, len(context.ids), profile)
    seal = _seal(gathered, rendered, profile)
    grammar = source_for(request, context.place.tools or (), renderer.turns.format)
    return Plan(gathered.conversation, gathered.request_id, request, seal, context, limit, grammar)


def output_limit(request: Request, context_tokens: int, profile: Profile) -> int:
    """Return the most tokens of an answer. Raises ContextTooLong if there is room for none."""
    Room(profile.context_tokens_max).check(context_tokens, is_all=True)
    remaining = profile.context_tokens_max - context_tokens
    return min(request.output_tokens_max or remaining, remaining)


def render_branch(branch: Branch, renderer: Renderer, room: Room | None = None) -> Rendered:
    """Render a gathered context. Raises the refusals of `Renderer.extend`."""
    return renderer.extend(branch.base or renderer.empty, branch.listings, room)


def _check_answers(gathered: Gathered, rendered: Rendered, renderer: Renderer, room: Room) -> None:
    """Raise TokensForeign for an answer whose context was rendered differently from here.

    Ids within the vocabulary may still be those of another model. Raises ContextTooLong for
    an answer of another branch whose context has no room here.
    """
    branch = gathered.branch
    base = (branch.base.digest,) if branch.base is not None else ()
    here = dict(zip(branch.seals, (*base, *rendered.digests), strict=False))
    for answer in gathered.answers:
        if here.get(answer.seal) == answer.render_digest:
            continue
        # The answer comes from another branch, or the template rewrites history.
        own = gathered.others.get(answer.seal) or _up_to(branch, answer.seal)
        if render_branch(own, renderer, room).context.digest != answer.render_digest:
            raise TokensForeign(f"the answer {short(answer.entry)} was rendered differently")


def _up_to(branch: Branch, seal: EntryId) -> Branch:
    """Return the part of a branch up to one of its seals."""
    index = branch.seals.index(seal)
    count = index if branch.base is not None else index + 1
    return Branch(branch.seals[: index + 1], branch.base, branch.listings[:count])


_SEAL_FIELDS = 7 + limits.MEMBERSHIP_HEADS_MAX
_PROJECTION_FIELDS = 4
"""Most fields of a seal beside its entries and projections, and of one projection with itself."""


def _seal(gathered: Gathered, rendered: Rendered, profile: Profile) -> Seal:
    """Build the seal. Raises SealTooLarge."""
    render_digest, tokens_per_entry, projections = rendering_of(gathered.entries, rendered)
    seal = Seal(
        request=gathered.request_id,
        prev_seal=gathered.prev_seal,
        entries=gathered.entries,
        profile=profile.digest,
        context_digest=gathered.context_digest,
        render_digest=render_digest,
        tokens_per_entry=tokens_per_entry,
        membership_heads=gathered.membership_heads,
        projections=projections,
    )
    size = SALT_BYTES + len(codec.encode_body(seal))
    if size > limits.BODY_BYTES_MAX:
        raise SealTooLarge(f"a seal of {size} bytes, at most {limits.BODY_BYTES_MAX}")
    fields = _SEAL_FIELDS + len(seal.entries) + _PROJECTION_FIELDS * len(projections)
    if fields > limits.BODY_FIELDS_MAX:
        raise SealTooLarge(f"{len(projections)} parts are not rendered as they are: too many")
    return seal


def rendering_of(
    entries: Sequence[EntryId], rendered: Rendered
) -> tuple[Digest, tuple[int, ...], tuple[Projected, ...]]:
    """Return what a seal states of its rendering: digest, tokens of each entry, projections.

    `entries` are those that the seal lists, the last ones rendered.
    """
    counts = tuple(len(ids) for _, ids in rendered.tokens[-len(entries) :])
    listed = set(entries)
    projections = tuple(p for p in rendered.projections if p.entry in listed)
    return rendered.context.digest, counts, projections
