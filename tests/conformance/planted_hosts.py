"""Bugs put into a host's tools, forms, calls, pages and archives: the kit must find each."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from model_host.batching import Auditor, Batcher
from model_host.errors import ArchiveInvalid, ReplayBusy
from model_host.generation import Run, planning, runner
from model_host.generation.stop import StopMatcher
from model_host.grammar import Grammar
from model_host.io.calls import pages_call, service
from model_host.io.calls.archive_service import ArchiveService
from model_host.io.calls.host_stats import HostStats
from model_host.io.calls.replay_handler import ReplayHandler
from model_host.io.profiles import namespaces
from model_host.io.profiles.namespaces import Namespaces
from model_host.io.profiles.offers import Offers
from model_host.io.threads.engine_thread import EngineThread
from model_host.kv import archive, entry_pages
from model_host.kv.cached_pages import CachedPages
from model_host.kv.prefix import PrefixIndex
from model_host.kv.sequences import KVSequence
from model_host.kv.users import Users
from model_host.operators import Operators
from model_host.rendering import Renderer
from model_host.scheduling import schedule
from replica.conversation import Ledger
from replica.link import profile_to_pb
from replica.log import Sampling, Tools, Usage
from replica.refusals import ArgumentInvalid, ConversationUnknown
from tests.conformance.planted_peers import Planted
from tests.simulation.planted import Patch

# --- tools and forms ----------------------------------------------------------------------


def forgets_open_calls() -> Patch:
    return mock.patch.object(Ledger, "open_calls", ())


def closes_calls_by_any_result() -> Patch:
    after = Ledger._after_parts

    def of_any(self, parts, author, opener, owners):
        executors = [call.asked.executor for call in self.calls.values()]
        return after(self, parts, (executors or [author])[0], opener, owners)

    return mock.patch.object(Ledger, "_after_parts", of_any)


def opens_a_turn_for_tools() -> Patch:
    fragment = Renderer._fragment

    def of_its_own(self, item, place, *given):
        is_tools = isinstance(item.body, Tools)
        return fragment(self, item, replace(place, role=None) if is_tools else place, *given)

    return mock.patch.object(Renderer, "_fragment", of_its_own)


def numbers_calls_otherwise() -> Patch:
    return mock.patch.object(runner, "CALL_ID_DIGITS", 23)


def ends_in_the_middle_of_a_form() -> Patch:
    mask = Grammar.mask

    def with_ends(self):
        words = mask(self)
        words[0] |= 0xF  # the control tokens of the tiny model
        return words

    return mock.patch.object(Grammar, "mask", with_ends)


def states_no_grammar() -> Patch:
    made = Run.generation
    return mock.patch.object(
        Run, "generation", lambda *given, **more: replace(made(*given, **more), grammar_engine="")
    )


def ignores_forms() -> Patch:
    return mock.patch.object(planning, "source_for", lambda *_given: None)


# --- profiles and calls -------------------------------------------------------------------


def answers_by_the_default() -> Patch:
    return mock.patch.object(Offers, "choose", lambda self, wanted: self.default)


def recommends_a_seed() -> Patch:
    def seeded(info):
        return profile_to_pb(replace(info, sampling=Sampling(seed=1)))

    return mock.patch.object(service, "profile_to_pb", seeded)


def answers_calls_twice() -> Patch:
    return mock.patch.object(schedule, "repeats_call", lambda held, request: False)


def begins_a_turn_for_the_rest() -> Patch:
    return mock.patch.object(schedule, "_lost_its_answer", lambda held, ready: False)


def holds_nothing_back() -> Patch:
    return mock.patch.object(StopMatcher, "_undecided", lambda self: 0)


def names_requests_to_anyone() -> Patch:
    return mock.patch.object(Operators, "may_see", lambda self, key, held: True)


def shows_the_cache_to_anyone() -> Patch:
    measures = HostStats.measures
    return mock.patch.object(
        HostStats, "measures", lambda self, *, for_operator: measures(self, for_operator=True)
    )


def replays_all_at_once() -> Patch:
    never = property(lambda _self: False, lambda _self, _value: None)
    return mock.patch.object(ReplayHandler, "is_busy", never, create=True)


def states_no_time_to_wait() -> Patch:
    return mock.patch.object(ReplayBusy, "retryable", new=False)


def calls_errors_of_callers_retryable() -> Patch:
    return mock.patch.object(ArgumentInvalid, "retryable", new=True)


def says_nothing_to_do_next() -> Patch:
    return mock.patch.object(ConversationUnknown, "next_step", "")


# --- pages --------------------------------------------------------------------------------


def shows_shared_pages_to_members() -> Patch:
    def shown(tokens, located, *, shows_shared):
        return entry_pages(tokens, located, shows_shared=True)

    return mock.patch.object(pages_call, "entry_pages", shown)


def logs_shared_tokens_as_cached() -> Patch:
    return mock.patch.object(
        KVSequence, "own_tokens", property(lambda sequence: sequence.cached_tokens)
    )


def shares_with_any_reader() -> Patch:
    return mock.patch.object(namespaces, "domain_salt", lambda salt, readers: salt)


def shares_with_any_owner() -> Patch:
    return mock.patch.object(Namespaces, "_salt", lambda self, held: bytes(32))


def keeps_the_old_readers() -> Patch:
    conversation = Users.conversation

    def unchanged(self, key, domain):
        known = self.conversations.get(key)
        return conversation(self, key, known.domain if known is not None else domain)

    return mock.patch.object(Users, "conversation", unchanged)


def reports_no_evicted_tokens() -> Patch:
    evict = CachedPages.evict

    def silent(self, conversation):
        evict(self, conversation)
        return 0

    return mock.patch.object(CachedPages, "evict", silent)


def takes_another_token_for_the_same() -> Patch:
    find = PrefixIndex.find

    def longer(self, user, ids):
        found, own = find(self, user, ids)
        if found.node is None or found.common >= found.node.tokens:
            return found, own
        return replace(found, common=found.common + 1), own

    return mock.patch.object(PrefixIndex, "find", longer)


def leaves_nothing_to_compute() -> Patch:
    return _states_all_as_found(lambda usage: usage.prefilled_tokens == 1)


def restores_the_last_token() -> Patch:
    return _states_all_as_found(lambda usage: usage.restored_tokens > 0)


def _states_all_as_found(applies: Callable[[Usage], bool]) -> Patch:
    made = Run.generation

    def all_found(self, usage, digest, **given):
        if applies(usage):
            cached = usage.prompt_tokens - usage.restored_tokens
            usage = replace(usage, cached_tokens=cached, prefilled_tokens=0)
        return made(self, usage, digest, **given)

    return mock.patch.object(Run, "generation", all_found)


def audits_nothing() -> Patch:
    return mock.patch.object(Auditor, "add", lambda self, restored: None)


def warms_without_the_store() -> Patch:
    warm = EngineThread.warm
    return mock.patch.object(
        EngineThread, "warm", lambda self, *given, **more: warm(self, *given[:-1], None, **more)
    )


def keeps_nothing() -> Patch:
    return mock.patch.object(Batcher, "keep", lambda self, ids, conversation, seconds: 0)


def evicts_what_is_in_use() -> Patch:
    def evict(self, conversation):
        return 1

    return mock.patch.object(CachedPages, "evict", evict)


# --- archives -----------------------------------------------------------------------------


def keeps_a_part_of_an_archive() -> Patch:
    add = ArchiveService._add

    def lenient(self, held, file, loaded):
        file.truncate(file.seek(0, 2) - 1)
        return add(self, held, file, loaded)

    return mock.patch.object(ArchiveService, "_add", lenient)


def calls_foreign_archives_invalid() -> Patch:
    return mock.patch.object(archive, "ArchiveForeign", ArchiveInvalid)


def lets_readers_export() -> Patch:
    async def member(self, conversation, context):
        held, _ = await self._callers.member(conversation, context)
        return held

    return mock.patch.object(ArchiveService, "_writable", member)


HOSTS = [
    Planted(forgets_open_calls, "tools/open-call"),
    Planted(closes_calls_by_any_result, "tools/results-that-close"),
    Planted(opens_a_turn_for_tools, "tools/definitions"),
    Planted(numbers_calls_otherwise, "tools/calls-in-answers"),
    Planted(ends_in_the_middle_of_a_form, "forms/control-tokens"),
    Planted(states_no_grammar, "forms/digests-of-grammars"),
    Planted(ignores_forms, "forms/grammar-that-takes-too-much"),
    Planted(recommends_a_seed, "calls/profile-digest"),
    Planted(answers_calls_twice, "refusals/repeated-call"),
    Planted(begins_a_turn_for_the_rest, "refusals/rest-behind-the-rest"),
    Planted(holds_nothing_back, "answers/stop-string"),
    Planted(evicts_what_is_in_use, "calls/evict-beside-an-answer"),
    Planted(keeps_nothing, "calls/kept"),
    Planted(replays_all_at_once, "calls/replays-at-once"),
    Planted(states_no_time_to_wait, "calls/replays-at-once"),
    Planted(says_nothing_to_do_next, "calls/errors-have-the-form-of-the-chapter"),
    Planted(calls_errors_of_callers_retryable, "calls/errors-have-the-form-of-the-chapter"),
    Planted(names_requests_to_anyone, "calls/stats"),
    Planted(shows_the_cache_to_anyone, "calls/stats"),
    Planted(shows_shared_pages_to_members, "pages/shown-to-the-first-owner"),
    Planted(logs_shared_tokens_as_cached, "pages/shown-to-the-first-owner"),
    Planted(shares_with_any_reader, "pages/domains"),
    Planted(shares_with_any_owner, "pages/domains"),
    Planted(keeps_the_old_readers, "pages/readers-that-change"),
    Planted(reports_no_evicted_tokens, "pages/evicted"),
    Planted(takes_another_token_for_the_same, "pages/common-prefix"),
    Planted(leaves_nothing_to_compute, "pages/common-prefix"),
    # First of its case: audits of earlier restores may count later.
    Planted(audits_nothing, "pages/restored"),
    Planted(restores_the_last_token, "pages/restored"),
    Planted(warms_without_the_store, "pages/restored"),
    Planted(keeps_a_part_of_an_archive, "archives/changed"),
    Planted(calls_foreign_archives_invalid, "archives/of-another-conversation"),
    Planted(lets_readers_export, "archives/of-readers"),
]
