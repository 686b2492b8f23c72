"""Bugs put into how a host reads its requests: the kit must find each of them."""

from dataclasses import replace
from unittest import mock

from model_host.generation import Run, stop
from model_host.grammar import schema_check, source
from model_host.io.answers import request_handler
from model_host.io.profiles.offers import Offers
from model_host.io.profiles.profiles import Profiles
from model_host.refusals import ContextTooLong, ProfileUnknown, RequestExpired, StopInvalid
from model_host.rendering import contents
from model_host.sampling import state as sampler_state
from model_host.scheduling import schedule
from replica.log import FinishReason, Kind
from replica.order.tree import Order
from tests.conformance.planted_hub import both
from tests.conformance.planted_peers import Planted
from tests.simulation.planted import Patch

# --- control tokens -----------------------------------------------------------------------


def takes_control_tokens_of_members() -> Patch:
    return mock.patch.object(contents.Contents, "_typed_ids", contents.Contents._known_ids)


def reads_control_tokens_in_texts() -> Patch:
    def flush(self):
        if self._text:
            self._ids += self._encoder.encode_template(self._text)
            self._text = ""

    return mock.patch.object(contents._Ids, "_flush", flush)


# --- endings ------------------------------------------------------------------------------


def shows_the_stop_token() -> Patch:
    add = Run.add_token

    def shown(self, token_id, logprobs=None):
        if token_id in self.plan.request.stop_tokens:
            self.visible += self.text.push(token_id)
        return add(self, token_id, logprobs)

    return mock.patch.object(Run, "add_token", shown)


def calls_a_stop_token_a_limit() -> Patch:
    finish = Run._finish_after

    def limit(self, token_id, shown_bytes):
        if token_id in self.plan.request.stop_tokens:
            return FinishReason.LENGTH, "stop token"
        return finish(self, token_id, shown_bytes)

    return mock.patch.object(Run, "_finish_after", limit)


def forgets_the_end_of_a_stop_string() -> Patch:
    made = Run.generation

    def shorter(self, *given, **named):
        found = made(self, *given, **named)
        return replace(found, token_ids=found.token_ids[:-1]) if self.text.stopped_by else found

    return mock.patch.object(Run, "generation", shorter)


def honours_cancels_with_more_parents() -> Patch:
    def named_by_any(self, request):
        found = (e.header for e in self.log.entries.values() if e.header.kind == Kind.CANCEL)
        return any(request in header.parents for header in found)

    return mock.patch.object(Order, "is_cancelled", named_by_any)


# --- refusals -----------------------------------------------------------------------------


def refuses_any_deadline() -> Patch:
    return mock.patch.object(
        schedule,
        "expired",
        lambda request, _now: RequestExpired() if request.answer_by_ms else None,
    )


def counts_deadlines_by_the_day() -> Patch:
    expired, day_ms = schedule.expired, 86_400_000

    def a_day_later(request, now_ms):
        return expired(request, now_ms - day_ms)

    return both(
        mock.patch.object(schedule, "expired", a_day_later),
        mock.patch.object(request_handler, "expired", a_day_later),
    )


def counts_the_characters_of_stop_strings() -> Patch:
    made = stop.StopMatcher.__init__

    def of_characters(self, stops=(), begun=b""):
        stops = [*stops]
        if any(len(one) > stop.STOP_STRING_BYTES_MAX for one in stops):
            raise StopInvalid
        with mock.patch.object(stop, "STOP_STRING_BYTES_MAX", 2**20):
            made(self, stops, begun)

    return mock.patch.object(stop.StopMatcher, "__init__", of_characters)


def takes_shorter_stop_strings_alone() -> Patch:
    return mock.patch.object(stop, "STOP_STRING_BYTES_MAX", 255)


def takes_63_stop_tokens() -> Patch:
    return mock.patch.object(sampler_state, "STOP_TOKENS_MAX", 63)


def takes_any_choice() -> Patch:
    return mock.patch.object(source, "_check_choice", lambda _request, _tools: None)


def passes_over_keywords() -> Patch:
    known = schema_check.APPLIED | {"antiphonKit"}
    return mock.patch.object(schema_check, "APPLIED", known)


def lists_no_profiles() -> Patch:
    choose = Offers.choose

    def silent(self, wanted):
        try:
            return choose(self, wanted)
        except ProfileUnknown as error:
            raise ProfileUnknown("no such profile") from error

    return mock.patch.object(Offers, "choose", silent)


def states_no_numbers() -> Patch:
    made = ContextTooLong.__init__
    return mock.patch.object(
        ContextTooLong, "__init__", lambda self, *_given, **_named: made(self, "too long")
    )


# --- Evict --------------------------------------------------------------------------------


def _drops_checkpoints(*, always: bool) -> Patch:
    evict = Profiles.evict

    async def changed(self, conversation, *, checkpoints):
        return await evict(self, conversation, checkpoints=always)

    return mock.patch.object(Profiles, "evict", changed)


def keeps_checkpoints() -> Patch:
    return _drops_checkpoints(always=False)


def drops_checkpoints_unasked() -> Patch:
    return _drops_checkpoints(always=True)


REQUESTS = [
    Planted(takes_control_tokens_of_members, "control/ids-in-messages"),
    Planted(reads_control_tokens_in_texts, "control/texts-in-messages"),
    Planted(shows_the_stop_token, "answers/stop-token"),
    Planted(calls_a_stop_token_a_limit, "answers/stop-token"),
    Planted(forgets_the_end_of_a_stop_string, "answers/stop-string"),
    Planted(honours_cancels_with_more_parents, "answers/cancel-with-two-parents"),
    Planted(refuses_any_deadline, "refusals/expired"),
    Planted(counts_deadlines_by_the_day, "refusals/expired"),
    Planted(counts_the_characters_of_stop_strings, "refusals/long-stop-string"),
    Planted(takes_shorter_stop_strings_alone, "refusals/long-stop-string"),
    Planted(takes_63_stop_tokens, "refusals/stop-tokens-out-of-bounds"),
    Planted(takes_any_choice, "refusals/choice-without-tools"),
    Planted(passes_over_keywords, "refusals/unknown-keyword"),
    Planted(lists_no_profiles, "refusals/unknown-profile"),
    Planted(states_no_numbers, "refusals/long-context"),
    Planted(keeps_checkpoints, "pages/evicted-with-checkpoints"),
    Planted(drops_checkpoints_unasked, "pages/evicted-with-checkpoints"),
]
