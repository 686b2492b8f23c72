"""Bugs put into what a host renders, seals and states: the kit must find each of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from model_host.generation import Run
from model_host.io.calls.archive_service import ArchiveService
from model_host.rendering import contents, render, tool_formats
from model_host.rendering.contents import Contents
from model_host.sampling import state as sampler_state
from replica.conversation import next_seal
from replica.ids import Digest
from replica.log import (
    CONTINUABLE,
    FinishReason,
    Generation,
    Kind,
    Log,
    Opaque,
    Part,
    Revocation,
    ToolCall,
    ToolResult,
    ToolStarted,
    sampling_range,
)
from replica.refusals import ConversationUnknown, NotAllowed
from tests.conformance.planted_peers import Planted
from tests.simulation.planted import Patch

# --- tools ----------------------------------------------------------------------------------


def says_nothing_of_earlier_tools() -> Patch:
    section = Contents.section_ids

    def alone(self, tools, *, replaces, **more):
        return section(self, tools, replaces=replaces and not tools, **more)

    return mock.patch.object(Contents, "section_ids", alone)


def says_nothing_of_no_tools() -> Patch:
    section = Contents.section_ids
    return mock.patch.object(
        Contents,
        "section_ids",
        lambda self, tools, **how: section(self, tools, **how) if tools else (),
    )


def writes_definitions_anew() -> Patch:
    written = tool_formats.definition
    return mock.patch.object(
        tool_formats, "definition", lambda tool: json.dumps(json.loads(written(tool)))
    )


def _reads(change: Callable[[Part], Part | None]) -> Patch:
    """Return a bug: parts are rendered as others, or as nothing."""
    add = Contents._add

    def changed(self, ids, part, *given):
        found = change(part)
        if found is not None:
            add(self, ids, found, *given)

    return mock.patch.object(Contents, "_add", changed)


def renders_errors_like_results() -> Patch:
    return _reads(
        lambda part: replace(part, is_error=False) if isinstance(part, ToolResult) else part
    )


def renders_notes_of_starts() -> Patch:
    add = Contents._add

    def noted(self, ids, part, *given):
        if isinstance(part, ToolStarted):
            ids.add_text("started")
        add(self, ids, part, *given)

    return mock.patch.object(Contents, "_add", noted)


def writes_arguments_anew() -> Patch:
    parts = Run._parts

    def compact(self):
        for part in parts(self):
            if isinstance(part, ToolCall):
                arguments = json.dumps(json.loads(part.arguments_json), separators=(",", ":"))
                yield replace(part, arguments_json=arguments)
            else:
                yield part

    return mock.patch.object(Run, "_parts", compact)


# --- messages -------------------------------------------------------------------------------


def drops_fallback_texts() -> Patch:
    return _reads(
        lambda part: replace(part, fallback_text="") if isinstance(part, Opaque) else part
    )


def trims_texts() -> Patch:
    add = contents._Ids.add_text
    return mock.patch.object(contents._Ids, "add_text", lambda self, text: add(self, text.rstrip()))


def tokenizes_parts_apart() -> Patch:
    add = contents._Ids.add_text

    def apart(self, text):
        self._flush()
        add(self, text)

    return mock.patch.object(contents._Ids, "add_text", apart)


def keeps_no_id_twice() -> Patch:
    typed = Contents._typed_ids
    return mock.patch.object(
        Contents, "_typed_ids", lambda self, ids: tuple(dict.fromkeys(typed(self, ids)))
    )


# --- seals and turns ------------------------------------------------------------------------


def seals_without_removals() -> Patch:
    """Name the heads of the grants alone."""
    heads = Log.membership_heads

    def of_grants(log):
        named = [log.entries[one] for one in heads(log)]
        while any(_removes(log, entry) for entry in named):
            named = [log.entries[parent] for entry in named for parent in entry.header.parents]
        return tuple(entry.id for entry in named)

    seal = next_seal.seal_by_coverage

    def sealed(held, request):
        with mock.patch.object(Log, "membership_heads", of_grants):
            return seal(held, request)

    return mock.patch.object(next_seal, "seal_by_coverage", sealed)


def _removes(log, entry) -> bool:
    body = log.body(entry.id)
    return entry.header.kind == Kind.MEMBER and isinstance(body.change, Revocation)


def opens_a_turn_behind_a_cancel() -> Patch:
    return mock.patch.object(render, "CONTINUABLE", CONTINUABLE - {FinishReason.CANCELLED})


def goes_on_behind_a_stop() -> Patch:
    return mock.patch.object(render, "CONTINUABLE", CONTINUABLE | {FinishReason.STOP})


# --- sampling -------------------------------------------------------------------------------


def draws_with_seeds_of_32_bits() -> Patch:
    word = sampler_state.draw_word
    return mock.patch.object(
        sampler_state, "draw_word", lambda seed, index: word(seed % 2**32, index)
    )


def penalizes_the_last_tokens_alone() -> Patch:
    made = sampler_state._Changes.__init__

    def with_window(self, sampling, context):
        made(self, replace(sampling, penalty_window=sampling.penalty_window or 64), context)

    return mock.patch.object(sampler_state._Changes, "__init__", with_window)


def _takes(names: tuple[str, ...], least: float) -> Patch:
    """Return a bug: some numbers have a wider range."""
    fault = sampling_range.range_fault

    def lenient(name, value, low, high):
        is_taken = name.startswith(names) and value >= least
        return None if is_taken else fault(name, value, low, high)

    return mock.patch.object(sampling_range, "range_fault", lenient)


def takes_any_bias() -> Patch:
    return _takes(("logit_bias",), -1e6)


def takes_shares_below_0() -> Patch:
    return _takes(("top_p", "min_p"), -1e6)


# --- statements -----------------------------------------------------------------------------


def _states(change: Callable[[Generation], Generation]) -> Patch:
    made = Run.generation
    return mock.patch.object(
        Run, "generation", lambda self, *given, **named: change(made(self, *given, **named))
    )


def miscounts_visible_bytes() -> Patch:
    return _states(lambda found: replace(found, visible_bytes=found.visible_bytes + 1))


def counts_no_output() -> Patch:
    return _states(lambda found: replace(found, usage=replace(found.usage, output_tokens=0)))


def states_another_run() -> Patch:
    return _states(lambda found: replace(found, run=found.run ^ 1))


def states_no_numerics_class() -> Patch:
    return _states(lambda found: replace(found, numerics_class=None))


def digests_grammars_otherwise() -> Patch:
    def other(found):
        digest = found.grammar_digest
        return found if digest is None else replace(found, grammar_digest=Digest(digest[::-1]))

    return _states(other)


def tells_strangers_what_it_holds() -> Patch:
    writable = ArchiveService._writable

    async def telling(self, conversation, context):
        try:
            return await writable(self, conversation, context)
        except ConversationUnknown as error:
            raise NotAllowed from error

    return mock.patch.object(ArchiveService, "_writable", telling)


CONTEXTS = [
    Planted(says_nothing_of_earlier_tools, "tools/later-definitions"),
    Planted(says_nothing_of_no_tools, "tools/later-definitions"),
    Planted(writes_definitions_anew, "tools/definitions-as-written"),
    Planted(renders_errors_like_results, "tools/results-in-contexts"),
    Planted(renders_notes_of_starts, "tools/results-in-contexts"),
    Planted(writes_arguments_anew, "tools/calls-in-answers"),
    Planted(drops_fallback_texts, "opaque/degraded-and-dropped"),
    Planted(trims_texts, "contents/texts-as-written"),
    Planted(tokenizes_parts_apart, "contents/texts-as-written"),
    Planted(keeps_no_id_twice, "contents/ids-as-written"),
    Planted(seals_without_removals, "access/messages-of-removed-members"),
    Planted(opens_a_turn_behind_a_cancel, "endings/behind-a-cancel"),
    Planted(goes_on_behind_a_stop, "endings/behind-a-stop"),
    Planted(draws_with_seeds_of_32_bits, "sampling/draws"),
    Planted(penalizes_the_last_tokens_alone, "sampling/window-of-all"),
    Planted(takes_any_bias, "refusals/numbers-out-of-range"),
    Planted(takes_shares_below_0, "refusals/numbers-out-of-range"),
    Planted(miscounts_visible_bytes, "answers/length"),
    Planted(counts_no_output, "answers/length"),
    Planted(states_another_run, "answers/length"),
    Planted(states_no_numerics_class, "answers/usage-and-recipes"),
    Planted(digests_grammars_otherwise, "forms/digests-of-grammars"),
    Planted(tells_strangers_what_it_holds, "archives/of-readers"),
]
