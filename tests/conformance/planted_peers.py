"""Bugs put into clients, hosts and folds on purpose: the kit must find each of them."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from antiphon.v1 import blob_pb2
from model_host.generation import Run, planning
from model_host.generation.stop import StopMatcher
from model_host.io.answers.run_table import RunTable
from model_host.io.calls import replay_handler
from model_host.io.calls.callers import Callers
from model_host.rendering import contents, render
from model_host.sampling import Sampler
from model_host.sampling import state as sampler_state
from replica.conversation import next_seal
from replica.conversation.conversation import Conversation
from replica.conversation.store_epochs import StoreEpochs
from replica.ids import Digest, PublicKey
from replica.io import begin, rpc
from replica.io.calls import hub_calls
from replica.io.calls.blob_calls import BlobCalls
from replica.link import Authenticator, auth, draft_intake, greeting, host_choice
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.credit import FlowControl
from replica.link.exchange import Exchange
from replica.link.heartbeat import Heartbeat
from replica.link.hub_side import HubSide
from replica.log import Need, Outcome
from replica.order import tree, verdict
from replica.order.tree import Order
from replica.refusals import ConversationUnknown, Unauthenticated
from tests.conformance import planted_writers as writers
from tests.conformance.planted_hub import stores_nothing
from tests.simulation.planted import Patch, host, link, order, storage


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, and the case that finds it."""

    bug: Callable[[], Patch]
    case: str
    hangs: bool = False
    """The case waits for a host until it gives up."""


# --- clients ----------------------------------------------------------------------------


def signs_unproved_challenges() -> Patch:
    def sign(key, nonce, challenge, **_more):
        public = key.public_key().public_bytes_raw()
        return key.sign(auth._transcript(auth._CLIENT_ROLE, public, nonce, challenge))

    return mock.patch.object(rpc, "prove", sign)


def forgets_the_pinned_key() -> Patch:
    async def none(*_args):
        return None

    return mock.patch.object(hub_calls, "pinned_key", none)


def accepts_any_version() -> Patch:
    return mock.patch.object(greeting, "check_hub", lambda message, peer: None)


def sends_beyond_its_credit() -> Patch:
    return mock.patch.object(FlowControl, "may_send", lambda self: True)


def sends_no_heartbeats() -> Patch:
    return mock.patch.object(Heartbeat, "begin", lambda self, now: False)


def goes_on_in_any_lane_of_the_key() -> Patch:
    return mock.patch.object(StoreEpochs, "is_own", lambda _self, _epoch: True)


def believes_every_ack() -> Patch:
    def receive(self, message, out):
        channel = self.channels[message.conversation]
        held = self._conversation(channel.id)
        channel.deliver_acked(channel.mark_acked(held, message.ids), out)

    return mock.patch.object(ClientSide, "receive_ack", receive)


def counts_sent_entries_as_acked() -> Patch:
    frame = Channel.next_frame

    def hasty(self, held, *, awaits_acks):
        sent = frame(self, held, awaits_acks=awaits_acks)
        self.unacked.clear()
        return sent

    return mock.patch.object(Channel, "next_frame", hasty)


def verifies_no_signature() -> Patch:
    admit = Conversation.admit
    return mock.patch.object(
        Conversation, "admit", lambda self, entry, verified=False: admit(self, entry, verified=True)
    )


def accepts_unsigned_drafts() -> Patch:
    return mock.patch.object(draft_intake, "verify_draft", lambda draft, host: None)


def reads_blobs_unchecked() -> Patch:
    async def read(self, conversation, digest):
        request = blob_pb2.ReadRequest(conversation=conversation, digest=digest)
        async for response in self._responses(request):
            yield response.data

    return mock.patch.object(BlobCalls, "read", read)


def grants_to_any_linked_host() -> Patch:
    def first(named, pinned, linked):
        return host_choice.HostChoice(linked[-1].key, host_choice.HostReason.VOUCHED)

    return mock.patch.object(begin, "host_to_grant", first)


CLIENTS = [
    Planted(reads_blobs_unchecked, "blobs/rotten"),
    Planted(grants_to_any_linked_host, "begins/with-a-vouched-host"),
    Planted(signs_unproved_challenges, "links/wrong-signature"),
    Planted(writers.signs_expired_challenges, "links/expired-challenge"),
    Planted(writers.signs_for_nonces_of_any_width, "links/short-nonce"),
    Planted(writers.accepts_keys_of_small_order, "links/small-order-key"),
    Planted(forgets_the_pinned_key, "links/other-hub-after-a-restart"),
    Planted(accepts_any_version, "links/unknown-version"),
    Planted(sends_beyond_its_credit, "links/credit"),
    Planted(sends_no_heartbeats, "links/heartbeats"),
    Planted(believes_every_ack, "entries/ack-of-what-was-not-sent"),
    Planted(counts_sent_entries_as_acked, "entries/late-ack"),
    Planted(link.counts_a_guess_as_an_ack, "entries/ack-of-what-was-not-sent"),
    Planted(link.calls_every_digest_equal_at_the_client, "entries/false-equal"),
    Planted(link.gives_up_a_conversation_the_hub_lost, "entries/lost-hub"),
    Planted(link.accepts_drafts_with_gaps, "entries/drafts"),
    Planted(accepts_unsigned_drafts, "entries/drafts"),
    Planted(verifies_no_signature, "entries/forged-entry"),
    Planted(storage.writes_on_in_the_epoch_of_a_restored_disk, "entries/restored-backup"),
    Planted(goes_on_in_any_lane_of_the_key, "entries/other-device"),
    Planted(writers.writes_all_at_the_start_of_a_lane, "writing/lanes-without-gaps"),
    Planted(stores_nothing, "writing/sent-entries-are-stored"),
    Planted(writers.ignores_critical_kinds, "writing/critical-kind"),
    Planted(writers.heeds_void_critical_kinds, "writing/critical-kind-of-a-writer"),
    Planted(writers.follows_uncovered_entries, "writing/uncovered-parents"),
    Planted(writers.connects_anywhere_without_tls, "links/off-loopback"),
    Planted(writers.writes_the_whole_document, "documents/own-changes"),
    Planted(writers.follows_no_edit, "documents/replaced-value"),
    Planted(writers.edits_any_value, "documents/values-outside-json"),
    Planted(writers.asks_for_ids_in_return, "entries/diverged-lane"),
    Planted(writers.compares_no_digests_when_idle, "links/digests-with-heartbeats"),
    Planted(writers.shrinks_its_limit, "links/limit-never-shrinks"),
    Planted(writers.heeds_every_greeting, "links/later-greeting"),
    Planted(writers.shows_one_run_alone, "entries/drafts-of-another-run"),
    Planted(writers.believes_any_host, "entries/answer-of-another-host"),
    Planted(writers.believes_any_refusal, "entries/answer-of-another-host"),
    Planted(writers.waits_for_a_silent_hub, "links/silent-hub"),
    Planted(writers.believes_the_last_answer, "answers/first-of-several"),
    Planted(writers.believes_what_came_first, "answers/first-of-several"),
    Planted(writers.believes_answers_with_two_parents, "answers/with-two-parents"),
    Planted(writers.believes_a_refusal_for_good, "answers/seal-behind-a-refusal"),
    Planted(writers.follows_one_entry_alone, "writing/frontier"),
    Planted(writers.asks_for_branches, "writing/frontier"),
    Planted(writers.extends_no_seal, "writing/behind-an-answer"),
]

# --- hosts --------------------------------------------------------------------------------


def cancels_nothing() -> Patch:
    return mock.patch.object(Order, "is_cancelled", lambda self, request: False)


def shows_no_signed_drafts() -> Patch:
    return mock.patch.object(RunTable, "sign", lambda self, frame: frame)


def answers_one_token_more() -> Patch:
    limit = planning.output_limit
    return mock.patch.object(planning, "output_limit", lambda *given: limit(*given) + 1)


def draws_without_the_seed() -> Patch:
    draw, drawn = Sampler._draw, iter(range(10**6))

    def other(self, scores, best, state):
        with mock.patch.object(state, "sampling", replace(state.sampling, seed=next(drawn))):
            return draw(self, scores, best, state)

    return mock.patch.object(Sampler, "_draw", other)


def shows_the_stop_string() -> Patch:
    return mock.patch.object(StopMatcher, "_find", lambda self, before: None)


def answers_strangers() -> Patch:
    async def member(self, conversation, context):
        held = self.replica.shelf[conversation]
        return held, rpc.caller(self.authenticator, context)

    return mock.patch.object(Callers, "member", member)


def serves_removed_members() -> Patch:
    async def member(self, conversation, context):
        held, peer = self.replica.shelf.get(conversation), rpc.caller(self.authenticator, context)
        if held is None or not (held.is_member(peer) or peer in held.log.membership.kept):
            raise ConversationUnknown
        return held, peer

    return mock.patch.object(Callers, "member", member)


def proves_nothing() -> Patch:
    return mock.patch.object(auth, "verify", lambda *_: None)


def takes_forged_tickets() -> Patch:
    def holder(self, ticket, now_ms):
        if not ticket:
            raise Unauthenticated
        return PublicKey(ticket[:32])

    return mock.patch.object(Authenticator, "holder", holder)


def draws_with_any_numbers() -> Patch:
    return mock.patch.object(sampler_state, "sampling_fault", lambda _: None)


def stops_at_any_tokens() -> Patch:
    return mock.patch.object(sampler_state, "ids_fault", lambda *_: None)


def renders_any_tokens() -> Patch:
    return mock.patch.object(contents.Contents, "_known_ids", lambda self, ids: tuple(ids))


def signs_no_receipts() -> Patch:
    return mock.patch.object(
        replay_handler, "sign_receipt", lambda receipt, key: replace(receipt, signature=bytes(64))
    )


def states_no_recipes() -> Patch:
    made = Run.generation

    def silent(self, usage, digest, *, profile, numerics_class):
        return replace(
            made(self, usage, digest, profile=profile, numerics_class=numerics_class),
            sampler_digest=None,
        )

    return mock.patch.object(Run, "generation", silent)


def miscounts_the_prompt() -> Patch:
    made = Run.generation

    def more(self, usage, digest, **given):
        return made(self, replace(usage, prompt_tokens=usage.prompt_tokens + 1), digest, **given)

    return mock.patch.object(Run, "generation", more)


def commits_to_other_drafts() -> Patch:
    made = Run.generation

    def other(self, usage, digest, **given):
        return made(self, usage, Digest(bytes(32)), **given)

    return mock.patch.object(Run, "generation", other)


def seals_a_wrong_digest() -> Patch:
    return mock.patch.object(
        next_seal, "context_digest", lambda log, parent, entries: Digest(bytes(32))
    )


def _treats(need: Need, outcome: Outcome) -> Patch:
    project = contents._project
    return mock.patch.object(
        contents, "_project", lambda part: outcome if part.need == need else project(part)
    )


def drops_required_parts() -> Patch:
    return _treats(Need.REQUIRED, Outcome.DROPPED)


def drops_preferred_parts() -> Patch:
    return _treats(Need.PREFERRED, Outcome.DROPPED)


def records_other_tokens_than_it_drafted() -> Patch:
    made = Run.generation

    def other(self, *given, **named):
        found = made(self, *given, **named)
        return replace(found, token_ids=found.token_ids[::-1])

    return mock.patch.object(Run, "generation", other)


HOSTS = [
    Planted(drops_required_parts, "opaque/required"),
    Planted(drops_preferred_parts, "opaque/degraded-and-dropped"),
    Planted(records_other_tokens_than_it_drafted, "answers/drafts"),
    Planted(host.answers_for_another_host, "seals/other-host", hangs=True),
    Planted(seals_a_wrong_digest, "seals/first-turn"),
    Planted(shows_no_signed_drafts, "answers/drafts"),
    Planted(commits_to_other_drafts, "answers/drafts"),
    Planted(answers_one_token_more, "answers/length"),
    Planted(draws_without_the_seed, "answers/same-seed"),
    Planted(shows_the_stop_string, "answers/stop-string"),
    Planted(cancels_nothing, "answers/cancel"),
    Planted(states_no_recipes, "answers/usage-and-recipes"),
    Planted(miscounts_the_prompt, "answers/usage-and-recipes"),
    Planted(answers_strangers, "calls/strangers"),
    Planted(draws_with_any_numbers, "refusals/numbers-out-of-range"),
    Planted(stops_at_any_tokens, "refusals/stop-tokens-out-of-bounds"),
    Planted(renders_any_tokens, "refusals/tokens-beyond"),
    Planted(serves_removed_members, "access/removed-members", hangs=True),
    Planted(proves_nothing, "access/proofs"),
    Planted(takes_forged_tickets, "access/tickets"),
    Planted(signs_no_receipts, "calls/replay"),
]

# --- order, coverage and comparison -----------------------------------------------------


def lists_any_coverage() -> Patch:
    return mock.patch.object(verdict, "_check_coverage", lambda *_: frozenset())


def counts_wrong_context_digests() -> Patch:
    @contextmanager
    def lenient() -> Iterator[None]:
        class Any(bytes):
            def __eq__(self, other):
                return True

            __hash__ = bytes.__hash__

            def __ne__(self, other):
                return False

        with mock.patch.object(verdict, "context_digest", lambda *_: Any(32)):
            yield

    return lenient()


def counts_the_last_seal() -> Patch:
    first = tree._comes_first
    return mock.patch.object(tree, "_comes_first", lambda log, a, b: first(log, b, a))


def reports_no_diverged_lane() -> Patch:
    send_missing = Exchange._send_missing

    def quiet(self, channel, held, heads):
        send_missing(self, channel, held, heads)
        return ()

    return mock.patch.object(HubSide, "_send_missing", quiet, create=True)


def judges_no_draft() -> Patch:
    return mock.patch.object(draft_intake, "verify_draft", lambda draft, host: None)


FOLDS = [
    Planted(lists_any_coverage, "divergence/lying-seals"),
    Planted(counts_wrong_context_digests, "divergence/lying-seals"),
    Planted(counts_the_last_seal, "divergence/lying-seals"),
    Planted(order.counts_entries_outside_a_cut, "divergence/partition-with-a-revocation"),
    Planted(order.covers_no_ancestors, "divergence/equivocation"),
    Planted(order.digests_positions_without_ids, "divergence/lane-fork"),
    Planted(reports_no_diverged_lane, "divergence/lane-fork"),
    Planted(order.ignores_the_basis, "divergence/partition"),
    Planted(judges_no_draft, "divergence/lying-drafts"),
]

# --- rendering and sampling -------------------------------------------------------------


def opens_a_turn_for_each_request() -> Patch:
    return mock.patch.object(render, "_continues", lambda before, request: False)


def closes_turns_twice() -> Patch:
    return mock.patch.object(render, "_unless_closed", lambda turn, literal: literal)


def digests_tokens_without_their_count() -> Patch:
    def extend(digest, entry, token_ids):
        packed = b"".join(i.to_bytes(4, "little") for i in token_ids)
        return Digest(hashlib.sha256(digest + entry + packed).digest())

    return mock.patch.object(render, "extend_render_digest", extend)


def chooses_the_second_best() -> Patch:
    def second(self, logits, state, mask):
        return int(logits.argsort()[-2])

    return mock.patch.object(Sampler, "_token", second)


REPLAYS = [
    opens_a_turn_for_each_request,
    closes_turns_twice,
    digests_tokens_without_their_count,
    chooses_the_second_best,
    draws_without_the_seed,
    shows_the_stop_string,
]
"""Each is found by the recorded answers of the model."""
