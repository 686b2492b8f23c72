"""Bugs put into a host's sampling, endings and replays: the kit must find each of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from unittest import mock

from model_host.batching import Batcher, Chosen, speculation
from model_host.batching.speculation import GUESSES_MAX
from model_host.generation import Run, VisibleText, planning, stop
from model_host.generation import text as visible_text
from model_host.generation.stop import PartialText, StopMatcher, unfinished
from model_host.rendering import Contexts, render
from model_host.rendering.contents import Contents
from model_host.replay import case as replay_case
from model_host.replay.check import AnswerCheck, Samplers
from model_host.sampling import Sampler
from model_host.sampling import state as sampler_state
from model_host.sampling.state import SamplerState, draw_word
from replica.conversation import Cause, Outcome, next_seal
from replica.log import CONTINUABLE, FinishReason, Generation
from replica.order import Order
from replica.order.queued import Ahead
from tests.conformance.planted_peers import Planted
from tests.simulation.planted import Patch

# --- sampling and endings ---------------------------------------------------------------------


def draws_one_index_later() -> Patch:
    def later(self):
        return draw_word(self.sampling.seed, self.output_index + 1)

    return mock.patch.object(SamplerState, "word", property(later))


def ignores(**fields: float) -> Callable[[], Patch]:
    """Return a bug: numbers of the sampling that are as if they were not asked for."""
    made = SamplerState.__init__

    def without(self, request, **given):
        sampling = replace(request.sampling, **fields)
        made(self, replace(request, sampling=sampling), **given)

    def bug() -> Patch:
        return mock.patch.object(SamplerState, "__init__", without)

    bug.__name__ = f"ignores_{'_'.join(fields)}"
    return bug


def divides_negative_logits() -> Patch:
    apply = sampler_state._Changes.apply

    def divided(self, scores):
        present = self._ids[: len(self._slots)]
        is_negative = bool((scores[present] + self._bias[: len(present)] <= 0).all())
        with mock.patch.object(
            self, "_repetition", 1 / self._repetition if is_negative else self._repetition
        ):
            apply(self, scores)

    return mock.patch.object(sampler_state._Changes, "apply", divided)


def penalizes_before_the_bias() -> Patch:
    apply = sampler_state._Changes.apply

    def early(self, scores):
        bias, self._bias = self._bias, self._bias * 0
        apply(self, scores)
        self._bias = bias
        scores[self._ids] += bias

    return mock.patch.object(sampler_state._Changes, "apply", early)


# --- text ---------------------------------------------------------------------------------


def hides_undecodable_bytes() -> Patch:
    return mock.patch.object(PartialText, "feed", lambda _self, data: data.decode(errors="ignore"))


def replaces_each_byte() -> Patch:
    def each(_self, data):
        text = data.decode(errors="surrogateescape")
        return "".join("\ufffd" if "\udc80" <= one <= "\udcff" else one for one in text)

    return mock.patch.object(PartialText, "feed", each)


def counts_bytes_before_they_are_replaced() -> Patch:
    made = Run.generation

    def fewer(self, *given, **named):
        found, extra = made(self, *given, **named), self.visible.decode().count("\ufffd") * 2
        return replace(found, visible_bytes=found.visible_bytes - extra)

    return mock.patch.object(Run, "generation", fewer)


def shows_unfinished_characters() -> Patch:
    def finish(self, *, can_continue):
        return self._characters.finish(self._matcher._held).encode()

    return mock.patch.object(VisibleText, "finish", finish)


def forgets_begun_characters() -> Patch:
    return mock.patch.object(visible_text, "unfinished", lambda _data: b"")


def takes_surrogates_for_characters() -> Patch:
    def begun(data):
        return data[-2:] if data[-2:-1] == b"\xed" and data[-1:] >= b"\xa0" else unfinished(data)

    return mock.patch.object(stop, "unfinished", begun)


def renders_behind_the_newest_seal() -> Patch:
    def newest(self, seal):
        return self._kept[next(reversed(self._kept))] if seal in self._kept else None

    return mock.patch.object(Contexts, "get", newest)


def goes_on_at_the_newest_branch() -> Patch:
    def newest(self, node, *, listing=None):
        return (self.tips() or [node])[-1]

    return mock.patch.object(Order, "branch_end", newest)


def queues_on_the_branch_that_was_left() -> Patch:
    def left(order, parents, basis):
        return Ahead(order.branch_end(basis))

    return mock.patch.object(next_seal, "queued_behind", left)


def lists_what_was_withdrawn() -> Patch:
    covers = import_module("replica.order.coverage")

    def with_all(*given):
        with mock.patch.object(covers, "withdrawn", lambda *_given: set()):
            return covers.coverage(*given)

    return mock.patch.object(next_seal, "coverage", with_all)


def queues_requests_that_fork() -> Patch:
    class Always:
        __hash__ = object.__hash__

        def __eq__(self, other):
            return True

    return mock.patch.object(next_seal, "Conflict", mock.Mock(QUEUE=Always()))


def takes_the_shortest_stop_string() -> Patch:
    def find(self, before):
        for end in range(before + 1, len(self._held) + 1):
            ending = [stop for stop in self._stops if self._held[:end].endswith(stop)]
            if ending:
                shortest = min(ending, key=len)
                return end - len(shortest), shortest
        return None

    return mock.patch.object(StopMatcher, "_find", find)


def ends_by_the_limit_first() -> Patch:
    ended = Run._finish_after

    def limited(self, token_id, shown_bytes):
        if len(self.token_ids) >= self.plan.output_tokens_max:
            return FinishReason.LENGTH, "output_tokens_max"
        return ended(self, token_id, shown_bytes)

    return mock.patch.object(Run, "_finish_after", limited)


def calls_a_full_context_a_limit() -> Patch:
    ended = Run._finish_after

    def renamed(self, token_id, shown_bytes):
        found = ended(self, token_id, shown_bytes)
        is_full = found is not None and found[0] == FinishReason.CONTEXT_LIMIT
        return (FinishReason.LENGTH, "full") if is_full else found

    return mock.patch.object(Run, "_finish_after", renamed)


def lets_the_requester_alone_cancel() -> Patch:
    def by_the_requester(self, request):
        cancels = self.cancels.closing_cancels(self.log.entries[request], self.log.membership)
        return bool(cancels)

    return mock.patch.object(Order, "is_cancelled", by_the_requester)


def continues_whatever_was_cut_off() -> Patch:
    def continues(before, _request):
        return isinstance(getattr(before, "body", None), Generation) and (
            before.body.finish_reason in CONTINUABLE
        )

    return mock.patch.object(render, "_continues", continues)


def states_log_probabilities_of_scores() -> Patch:
    choose = Sampler.choose

    def changed(self, logits, state, mask=None):
        stated = self._logprobs

        def of_scores(_logits, token_id, count):
            return stated(state.scores(logits, mask), token_id, count)

        with mock.patch.object(self, "_logprobs", of_scores):
            return choose(self, logits, state, mask)

    return mock.patch.object(Sampler, "choose", changed)


def ends_before_the_least_length() -> Patch:
    made = SamplerState.__init__

    def early(self, request, **given):
        made(self, replace(request, output_tokens_min=0), **given)

    return mock.patch.object(SamplerState, "__init__", early)


def goes_on_behind_wrong_guesses() -> Patch:
    def choose(self, job, logits, events):
        run, begin = job.run, len(job.ids)
        for row in logits:
            choice = self._sampler.choose(row, run.sampler_state, run.mask())
            is_first = not run.token_ids
            job.ids.append(choice.token_id)
            shown = run.add_token(choice.token_id, choice.logprobs)
            events.append((job, Chosen(choice, shown, is_first)))
            if run.finished is not None:
                break
        job.is_decoding = True
        job.speculation.note(job.ids[begin:])

    @contextmanager
    def always_guessing() -> Iterator[None]:
        # Whether guesses pay depends on the machine's load.
        all_pay = mock.patch.object(speculation, "worthwhile", lambda *_given: GUESSES_MAX)
        with all_pay, mock.patch.object(Batcher, "_choose", choose):
            yield

    return always_guessing()


# --- replays ------------------------------------------------------------------------------


def judges_no_token() -> Patch:
    return mock.patch.object(AnswerCheck, "_judge", lambda *_given: None)


def compares_tokens_alone() -> Patch:
    return mock.patch.object(AnswerCheck, "_compare_rest", lambda *_given: None)


def compares_no_log_probabilities() -> Patch:
    note = AnswerCheck._note

    def lenient(self, cause, *given):
        if cause is not Cause.LOGPROBS:
            note(self, cause, *given)

    return mock.patch.object(AnswerCheck, "_note", lenient)


def replays_from_the_beginning() -> Patch:
    return mock.patch.object(replay_case, "_follows", lambda _node, _first: True)


def trusts_what_states_no_recipe() -> Patch:
    compare = AnswerCheck._compare_rest

    def trusting(self, run):
        if self.recorded.render_recipe_digest is not None:
            compare(self, run)

    return mock.patch.object(AnswerCheck, "_compare_rest", trusting)


def accepts_tokens_without_a_recipe() -> Patch:
    verdict = AnswerCheck._verdict

    def accepting(self):
        found = verdict(self)
        return (Outcome.ACCEPTED, found[1]) if self._states_no_recipe else found

    return mock.patch.object(AnswerCheck, "_verdict", accepting)


def accepts_any_end() -> Patch:
    return mock.patch.object(
        AnswerCheck,
        "_end",
        lambda self, run: (
            run.finished or run.end(self.recorded.finish_reason, self.recorded.finish_detail)
        ),
    )


def judges_by_its_own_recipe() -> Patch:
    return mock.patch.object(Samplers, "of", lambda self, recipe: self.present)


def judges_other_numerics() -> Patch:
    return mock.patch.object(AnswerCheck, "_hard", Cause.NONE)


def trusts_other_renderings() -> Patch:
    return mock.patch.object(planning, "_check_answers", lambda *_given: None)


def drops_text_without_ids() -> Patch:
    return mock.patch.object(Contents, "recorded_ids", lambda self, entry, answer, found: ())


ANSWERS = [
    Planted(draws_one_index_later, "sampling/draws"),
    Planted(ignores(top_p=0.0), "sampling/fewer-candidates"),
    Planted(ignores(min_p=0.0), "sampling/fewer-candidates"),
    Planted(ignores(presence_penalty=0.0), "sampling/penalties"),
    Planted(ignores(frequency_penalty=0.0), "sampling/penalties"),
    Planted(ignores(penalty_window=0), "sampling/penalties"),
    Planted(ignores(repetition_penalty=0.0), "sampling/repetition-penalty"),
    Planted(divides_negative_logits, "sampling/repetition-penalty"),
    Planted(penalizes_before_the_bias, "sampling/repetition-penalty"),
    Planted(hides_undecodable_bytes, "characters/undecodable-bytes"),
    Planted(replaces_each_byte, "characters/undecodable-bytes"),
    Planted(counts_bytes_before_they_are_replaced, "characters/undecodable-bytes"),
    Planted(shows_unfinished_characters, "characters/undecodable-bytes"),
    Planted(forgets_begun_characters, "characters/characters-in-pieces"),
    Planted(takes_surrogates_for_characters, "characters/surrogates"),
    Planted(renders_behind_the_newest_seal, "answers/branches"),
    Planted(goes_on_at_the_newest_branch, "seals/branches"),
    Planted(queues_requests_that_fork, "seals/branches", hangs=True),
    Planted(queues_on_the_branch_that_was_left, "seals/queued-behind-fork"),
    Planted(lists_what_was_withdrawn, "seals/withdrawn-message", hangs=True),
    Planted(states_log_probabilities_of_scores, "sampling/log-probabilities-of-the-model"),
    Planted(ends_before_the_least_length, "sampling/least-length"),
    Planted(goes_on_behind_wrong_guesses, "sampling/guesses"),
    Planted(takes_the_shortest_stop_string, "endings/first-stop-string"),
    Planted(ends_by_the_limit_first, "endings/stop-string-at-the-limit"),
    Planted(calls_a_full_context_a_limit, "endings/end-of-the-context"),
    Planted(lets_the_requester_alone_cancel, "answers/cancel-of-another-member"),
    Planted(continues_whatever_was_cut_off, "endings/queued-behind-a-limit"),
    Planted(compares_no_log_probabilities, "lies/other-log-probabilities"),
    Planted(replays_from_the_beginning, "calls/replay-from-an-entry"),
    Planted(judges_no_token, "lies/changed-token"),
    Planted(compares_tokens_alone, "lies/other-statements"),
    Planted(trusts_what_states_no_recipe, "lies/unstated-recipe"),
    Planted(accepts_tokens_without_a_recipe, "lies/invented-without-recipes"),
    Planted(accepts_any_end, "lies/cancelled-without-a-cancel"),
    Planted(judges_by_its_own_recipe, "lies/unknown-recipe"),
    Planted(judges_other_numerics, "lies/other-numerics"),
    Planted(trusts_other_renderings, "lies/other-rendering"),
    Planted(drops_text_without_ids, "lies/text-without-ids"),
]
