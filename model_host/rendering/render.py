"""The rendering recipe: from context to tokens (spec/07-host §2).

Pure. Control tokens come from the template's own literals alone, contents are tokenised as
plain text, and recorded ids are inserted exactly as they were produced.

The text between two contents, closing mark included, belongs to the entry that opens the
next turn. Rendering is therefore append-only: a longer context has the tokens of the shorter
one as its prefix. A Context is what was rendered so far; with a local template it is
extended by the new entries alone.

    Context ─ extend(listings) ─► Rendered ─► its context … ─ extend ─► …
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from struct import pack
from types import MappingProxyType
from typing import Self

from model_host.refusals import TemplateUnsupported
from model_host.rendering.contents import APART, Contents, begins_with_text
from model_host.rendering.fragments import Fragment, Turn
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.room import Bound, RoomyEncoder
from model_host.rendering.template import (
    ROLES,
    Encoder,
    Headers,
    Opening,
    Pairs,
    Template,
    find_headers,
    find_pairs,
    is_local,
)
from model_host.rendering.tool_formats import FORMATS_DIGEST
from model_host.rendering.turns import turn_rules_of
from model_host.template_sandbox import REFUSES
from replica.conversation import Ledger
from replica.ids import Digest, EntryId, short, tagged_sha256
from replica.log import (
    CONTINUABLE,
    Generation,
    Message,
    Projected,
    Request,
    Speaker,
    ToolDefinition,
    Tools,
)

RECIPE = (
    b"antiphon/v1/render-recipe:7 sentinel-split pairs-if-local next-entry-closes ids-spliced "
    b"follow-continues tools-in-system-turns user-turns-joined foreign-results-dropped "
    b"spaces-with-text default-system-with-tools formats:" + FORMATS_DIGEST
)
RECIPE_DIGEST = tagged_sha256(b"antiphon/v1/render-recipe", RECIPE)
_SYSTEM, _USER, _ASSISTANT, _ = ROLES.values()
_ID_BYTES = 40
"""Memory of one token id in a tuple of its own."""


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a context, as far as the next entry's fragment depends on it."""

    last: ContextItem | None = None
    role: str | None = None
    """The role of the last turn."""
    has_tools: bool = False
    """Whether the last turn offers tools."""
    tools: tuple[ToolDefinition, ...] | None = None
    """The tools offered last; None if none ever were."""
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class Context:
    """A context as rendered so far; never changed, so that threads may share it."""

    ids: tuple[int, ...]
    digest: Digest
    """The render digest of all entries."""
    turn: Turn | None = None
    place: Place = field(default_factory=Place)
    fragments: tuple[Fragment, ...] = ()
    """All fragments, kept only where the template runs over them again."""

    @property
    def continued_tokens(self) -> int:
        """The number of recorded ids at the end, in the turn that the last request continues."""
        last = self.place.last
        asked = last is not None and _opens_answer(last)
        return self.turn.tokens if asked and self.turn is not None else 0

    @property
    def size_bytes(self) -> int:
        """The memory of this context, about."""
        pieces = sum(len(fragment.ids or ()) for fragment in self.fragments)
        return _ID_BYTES * (len(self.ids) + pieces)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The entries that extended a context: their tokens, and the whole context."""

    context: Context
    tokens: tuple[tuple[EntryId, tuple[int, ...]], ...]
    """Tokens of each new entry, in context order."""
    digests: tuple[Digest, ...]
    """The render digest after each listing."""
    projections: tuple[Projected, ...]


class Renderer:
    """The recipe for one template and tokenizer; never changed, so that threads may share it."""

    def __init__(
        self,
        template: Template,
        encoder: Encoder,
        pairs: Pairs | None = None,
        headers: Headers = MappingProxyType({}),  # it never changes
    ) -> None:
        """Render with what is known of the template's literals; see `load`."""
        self.template = template
        self.encoder = encoder
        self.turns = turn_rules_of(template)
        self._contents = Contents(encoder, self.turns)
        self._headers = headers
        self._local = None
        if pairs is not None and is_local(pairs, headers):
            self._local = _Local(encoder, pairs, headers)
        self.empty = Context((), render_seed(encoder.digest, template.digest))

    @classmethod
    def load(cls, template: Template, encoder: Encoder) -> Self:
        """Look for the literals that contexts share."""
        return cls(template, encoder, find_pairs(template), find_headers(template))

    @property
    def is_local(self) -> bool:
        """Whether a context is extended without rendering it again."""
        return self._local is not None

    def extend(
        self, base: Context, listings: Sequence[Listing], room: Bound | None = None
    ) -> Rendered:
        """Render the entries that one or more seals list behind the context `base`.

        Raises what `room` raises as soon as it holds no more, and ToolsUnsupported,
        MediaUnsupported, OpaqueRequired, TokensControl, TokensForeign, TokenizerBytesMissing
        or TemplateUnsupported, which the host logs.
        """
        projections: list[Projected] = []
        new: list[Fragment] = []
        place = base.place
        encoder = RoomyEncoder(self.encoder, room, self.least_tokens(base)) if room else None
        contents = Contents(encoder, self.turns) if encoder else self._contents
        for listing in listings:
            for number, item in enumerate(listing.items):
                ledger, foreign = place.ledger.after(
                    item.author, item.body, answered=item.answered, owners=listing.owners
                )
                new.append(self._fragment(listing, number, place, projections, foreign, contents))
                if encoder is not None:
                    encoder.note(len(new[-1].ids or ()))
                place = _next_place(place, item, new[-1], ledger)
        start = base
        if self._local is not None:
            turn, tokens = _join(start.turn, new, self._local.literal)
        else:
            # The template may change what it wrote before older contents: all is rendered again.
            fragments, openings = self._opened((*base.fragments, *new))
            start = replace(self.empty, fragments=fragments)
            turn, tokens = _join(None, fragments, lambda _turn, opened: openings[opened.entry])
        digests = [start.digest]
        for entry, ids in tokens:
            digests.append(extend_render_digest(digests[-1], entry, ids))
        older = len(tokens) - len(new)
        ends = accumulate((len(listing.items) for listing in listings), initial=older)
        ids = start.ids + tuple(chain.from_iterable(ids for _, ids in tokens))
        return Rendered(
            Context(ids, digests[-1], turn, place, start.fragments),
            tuple(tokens[older:]),
            tuple(digests[end] for end in ends)[1:],
            tuple(projections),
        )

    def least_tokens(self, base: Context) -> int:
        """Return tokens that each longer context has: the literals of another one may change."""
        if self.is_local:
            return len(base.ids)
        return sum(len(fragment.ids or ()) for fragment in base.fragments)

    def _fragment(
        self,
        listing: Listing,
        number: int,
        place: Place,
        projections: list[Projected],
        foreign: Set[int],
        contents: Contents,
    ) -> Fragment:
        item = listing.items[number]
        entry = item.entry
        match item.body:
            case Tools(tools):
                joins = place.role == _SYSTEM
                replaces = place.tools is not None
                begins = place.role is None and not listing.has_system_behind(number)
                ids = contents.section_ids(tools, replaces=replaces, joins=joins, begins=begins)
                return Fragment(entry, None if joins else _SYSTEM, ids) if ids else Fragment(entry)
            case Message(speaker, parts):
                role = self._role(speaker)
                if self._joins(place, role):
                    ids = contents.message_ids(entry, parts, projections, foreign)
                    return Fragment(entry, None, (*contents.ids_of([APART]), *ids))
                message = item.body if begins_with_text(parts) else None
                is_spaced = message is not None and self._is_spaced(place.role, role)
                ids = contents.message_ids(entry, parts, projections, foreign, is_spaced=is_spaced)
                return Fragment(
                    entry, role, ids, is_spaced=is_spaced, message=message, foreign=foreign
                )
            case Request() if item.is_final:
                opens = None if _continues(place.last, item) else _ASSISTANT
                return Fragment(entry, opens, is_asked=opens is not None)
            case Generation() as generation:
                follows = place.last is not None and _opens_answer(place.last)
                ids = contents.recorded_ids(entry, generation, projections)
                opens = None if follows else _ASSISTANT
                return Fragment(entry, opens, ids, is_recorded=True)
            case _:
                return Fragment(entry)

    def _role(self, speaker: int) -> str:
        if speaker not in ROLES:
            raise TemplateUnsupported(f"the template has no role for speaker {speaker}")
        role = self.turns.result_role if speaker == Speaker.TOOL else ROLES[Speaker(speaker)]
        if role == _SYSTEM and not self.turns.has_system:
            raise TemplateUnsupported("the template has no system turns")
        return role

    def _joins(self, place: Place, role: str) -> bool:
        """Say whether a message of a role continues the last turn."""
        if role != place.role:
            return False
        return place.has_tools if role == _SYSTEM else role == _USER and self.turns.joins_user

    def _is_spaced(self, before: str | None, role: str) -> bool:
        """Say whether a text begins with the space of its literal, as far as that is known yet."""
        if self._local is None:
            return False
        opening = self._local.opening(before, role)
        return opening is not None and opening.before_space is not None

    def _opened(
        self, fragments: Sequence[Fragment]
    ) -> tuple[tuple[Fragment, ...], dict[EntryId, Opening]]:
        """Return fragments as their literals want them, and these by their entries.

        What is tokenised again here is in the room already.
        """
        opened = [fragment for fragment in fragments if fragment.opens is not None]
        literals = self._all_literals(opened)
        known = {text: Opening.of(self.encoder, text) for text in set(literals[1:])}
        openings = {
            one.entry: known[text] for one, text in zip(opened[1:], literals[1:], strict=True)
        }
        if opened:
            openings[opened[0].entry] = Opening.of(self.encoder, literals[0], begins=True)
        spaced = (
            _spaced(one, openings[one.entry], self._contents) if one.entry in openings else one
            for one in fragments
        )
        return tuple(spaced), openings

    # --- literals ---------------------------------------------------------------------

    def _all_literals(self, openings: Sequence[Fragment]) -> list[str]:
        """Return the literal of each turn."""
        roles = [_role_of(one) for one in openings]
        try:
            # The template has to accept the turn of the answer itself, not its header alone.
            literals = self.template.literals(roles, header=False)
            for index, opening in enumerate(openings):
                if opening.is_asked and index > 0:
                    literals[index] = self._header(roles[:index])
        except TemplateUnsupported as error:
            if not error.detail.startswith(REFUSES):
                raise  # it took too much time, and would take it again
            raise self._refusal(openings, error.detail.removeprefix(REFUSES)) from error
        return literals[:-1]  # the last one closes the last turn

    def _header(self, roles: Sequence[str]) -> str:
        known = self._headers.get(roles[-1])
        return known if known is not None else self.template.literals(roles, header=True)[-1]

    def _refusal(self, openings: Sequence[Fragment], words: str) -> TemplateUnsupported:
        """Return a refusal that names the first turn with which the template does not run."""
        roles = [_role_of(one) for one in openings]

        def is_refused(count: int) -> bool:
            try:
                self.template.literals(roles[:count], header=False)
            except TemplateUnsupported:
                return True
            return False

        counts = range(1, len(roles))
        count = 1 + bisect_left(counts, True, key=is_refused)
        before = roles[count - 2] if count > 1 else None
        return _refused_turn(openings[count - 1], before, words)


class _Local:
    """The literals of a local template, as token ids."""

    def __init__(self, encoder: Encoder, pairs: Pairs, headers: Headers) -> None:
        self._pairs = {
            (before, role): (
                Opening.of(encoder, text, begins=before is None) if text is not None else None
            )
            for (before, role), text in pairs.items()
        }
        self._headers = {role: Opening.of(encoder, text) for role, text in headers.items()}

    def opening(self, before: str | None, role: str) -> Opening | None:
        """Return the literal between two turns of these roles; None where it is refused."""
        return self._pairs.get((before, role))  # behind a refused turn none was tried

    def literal(self, before: Turn | None, opening: Fragment) -> Opening:
        """Return the literal that opens a turn behind another."""
        role = before.role if before is not None else None
        literal = self.opening(role, _role_of(opening))
        if literal is None:
            raise _refused_turn(opening, role)
        return self._headers[role] if opening.is_asked and role is not None else literal


def _spaced(fragment: Fragment, opening: Opening, contents: Contents) -> Fragment:
    """Return a fragment whose text begins with a space if the literal before it says so."""
    is_spaced, message = opening.before_space is not None, fragment.message
    if message is None or is_spaced == fragment.is_spaced:
        return fragment
    ids = contents.message_ids(
        fragment.entry, message.parts, [], fragment.foreign, is_spaced=is_spaced
    )
    return replace(fragment, ids=ids, is_spaced=is_spaced)


def _role_of(opening: Fragment) -> str:
    assert opening.opens is not None, "it opens a turn"
    return opening.opens


def _refused_turn(opening: Fragment, before: str | None, words: str = "") -> TemplateUnsupported:
    place = f"behind one of {before}" if before is not None else "at the beginning"
    why = f": {words}" if words else ""
    turn = f"a turn of {opening.opens}, which {short(opening.entry)} opens"
    return TemplateUnsupported(f"the template refuses {turn} {place}{why}")


_Tokens = list[tuple[EntryId, tuple[int, ...]]]


def _join(
    turn: Turn | None,
    fragments: Sequence[Fragment],
    literal_of: Callable[[Turn | None, Fragment], Opening],
) -> tuple[Turn | None, _Tokens]:
    """Return the last turn and the tokens of each entry, literals included."""
    tokens: _Tokens = []
    for fragment in fragments:
        literal, content = list[int](), fragment.ids or ()
        if fragment.opens is not None:
            literal = _unless_closed(turn, fragment.literal(literal_of(turn, fragment)))
            turn = Turn(fragment.opens)
        if turn is not None:
            turn = turn.with_content(content, is_recorded=fragment.is_recorded)
        tokens.append((fragment.entry, (*literal, *content)))
    return turn, tokens


def _unless_closed(turn: Turn | None, literal: list[int]) -> list[int]:
    """Return a literal without its first id, if the recorded ids closed the turn with it."""
    closed = turn is not None and turn.last_id is not None and literal[:1] == [turn.last_id]
    return literal[1:] if closed else literal


def _next_place(place: Place, item: ContextItem, fragment: Fragment, ledger: Ledger) -> Place:
    """Return the end of a context behind one more entry."""
    opens, tools = fragment.opens, place.tools
    offers = isinstance(item.body, Tools) and fragment.ids is not None
    if isinstance(item.body, Tools) and (item.body.tools or tools is not None):
        tools = item.body.tools
    has_tools = offers or (place.has_tools and opens is None)
    return Place(item, opens or place.role, has_tools, tools, ledger)


def _opens_answer(item: ContextItem) -> bool:
    return isinstance(item.body, Request) and item.is_final


def _continues(before: ContextItem | None, request: ContextItem) -> bool:
    """Say whether a request continues the answer right before it.

    A request that follows the answer was written after it was cut off. One that was
    queued behind it opens a turn of its own.
    """
    if before is None:
        return False
    is_cut_off = isinstance(before.body, Generation) and before.body.finish_reason in CONTINUABLE
    return is_cut_off and before.entry in request.parents


def render_seed(tokenizer: Digest, template: Digest) -> Digest:
    """Return the render digest of the empty context."""
    return tagged_sha256(b"antiphon/v1/render", tokenizer + template + RECIPE_DIGEST)


def extend_render_digest(digest: Digest, entry: EntryId, token_ids: Sequence[int]) -> Digest:
    """Extend a digest by one entry: previous ‖ id ‖ count ‖ ids, numbers 4 B little-endian."""
    packed = pack(f"<{1 + len(token_ids)}I", len(token_ids), *token_ids)
    return Digest(hashlib.sha256(digest + entry + packed).digest())
