"""Faults in what a hub tells clients without a log, and in numbers of 64 bits."""

from dataclasses import replace
from unittest import mock

from replica.ids import Lane, Position
from replica.link import draft_to_pb
from replica.link.hub_side import HubSide
from replica.log import Log
from replica.order import Order
from syncd.bounds.streams import Streams
from syncd.calls import queries
from syncd.links import hint as hints
from syncd.links import watch
from syncd.links.hint import Answered, OwnHead
from tests.conformance.planted_hub import Patch

_HINT_FOR = hints.hint_for
U64_MAX = 2**64 - 1


def _rounded(number: int) -> int:
    return min(int(float(number)), U64_MAX)


def sends_heads_through_doubles() -> Patch:
    heads_for = HubSide._heads_for

    def rounded(self, message, held):
        heads = heads_for(self, message, held)
        return heads and tuple(
            Position(Lane(one.author, _rounded(one.epoch), one.track), seq, i)
            for one, seq, i in heads
        )

    return mock.patch.object(HubSide, "_heads_for", rounded)


def reads_epochs_of_32_bits() -> Patch:
    def short(author, epoch, track):
        return Lane(author, epoch & 0xFFFFFFFF, track)

    return mock.patch("syncd.io.requests.Lane", short)


def streams_runs_through_doubles() -> Patch:
    def rounded(draft):
        found = draft_to_pb(draft)
        found.run = _rounded(found.run)
        return found

    return mock.patch("syncd.io.service.draft_to_pb", rounded)


def fetches_uncovered_entries() -> Patch:
    fetch = queries.fetch

    def lax(held, ids, ranges, *, headers_only=False):
        with mock.patch.object(Log, "covered", lambda self: self.entries.keys()):
            return iter(list(fetch(held, ids, ranges, headers_only=headers_only)))

    return mock.patch("syncd.calls.queries.fetch", lax)


def _hints(change) -> Patch:
    return mock.patch("syncd.links.fan_out.hint_for", change)


def forgets_the_basis_in_the_lamport() -> Patch:
    def lower(held, author):
        found = _HINT_FOR(held, author)
        parents = [held.log.entries[i].header.lamport for i in found.parents]
        return replace(found, lamport=1 + max(parents))

    return _hints(lower)


def hints_at_the_oldest_branch() -> Patch:
    tips = Order.tips

    def first(held, author):
        with mock.patch.object(Order, "tips", lambda self: tips(self)[:1]):
            return _HINT_FOR(held, author)

    return _hints(first)


def hints_membership_heads_descending() -> Patch:
    def backwards(held, author):
        found = _HINT_FOR(held, author)
        return replace(found, membership_heads=found.membership_heads[::-1])

    return _hints(backwards)


def hints_uncovered_own_heads() -> Patch:
    def lax(held, author):
        entries = held.log.entries
        tips = [
            entries[i]
            for lane in held.log.lanes_of(author)
            for i in held.log.lane_last_tips(lane, 9)
        ]
        own = tuple(OwnHead(e.position, e.header.lamport) for e in tips)
        return replace(_HINT_FOR(held, author), own_heads=own)

    return _hints(lax)


def names_requests_of_no_host() -> Patch:
    open_request = hints._open_request

    def lax(held, tip):
        unanswered = tip is not None and tip.generation is None
        return tip.seal.request if unanswered else open_request(held, tip)

    return mock.patch("syncd.links.hint._open_request", lax)


def names_second_answers() -> Patch:
    answer = hints._answer

    def lax(held, entry):
        node = held.order.nodes.get(entry.header.parents[0])
        if node is None:
            return answer(held, entry)
        return Answered(held.id, node.seal.request, node.id, entry.id)

    return mock.patch("syncd.links.hint._answer", lax)


def names_answers_to_void_seals() -> Patch:
    answer = hints._answer

    def lax(held, entry):
        parent = entry.header.parents[0]
        return answer(held, entry) or Answered(held.id, parent, None, entry.id)

    return mock.patch("syncd.links.hint._answer", lax)


def sends_drafts_to_all_watches() -> Patch:
    opening_steps = watch.opening_steps

    def lax(conversation, cursor, *, drafts):
        return opening_steps(conversation, cursor, drafts=True)

    return mock.patch("syncd.links.watch.opening_steps", lax)


def bounds_no_links_of_a_key() -> Patch:
    def unbounded(self, per_key_max, **more):
        _INIT(self, 2**20, **more)

    return mock.patch.object(Streams, "__init__", unbounded)


_INIT = Streams.__init__
