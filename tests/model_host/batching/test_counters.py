"""The counts of a host, and what each key is told of them."""

from dataclasses import replace

from model_host.batching.counters import (
    AnswerCounters,
    BatchCounters,
    EngineState,
    Tier,
    added,
    measures,
)
from model_host.batching.job import Found
from model_host.kv.page_pool import PoolCounters
from model_host.refusals import HostBusy, finish_detail
from replica.log.body import FinishReason, Usage
from replica.measures import Measure


def state_of(batch: BatchCounters, *, is_idle: bool = False) -> EngineState:
    tiers = (Tier("memory", 4096, 3, 64), Tier("disk", 8192, 1))
    return EngineState(batch, PoolCounters(lookups=4, hits=2), tiers, 5, 1, 2, is_idle)


def shown(state: EngineState, *, for_operator: bool) -> dict[str, Measure]:
    found = measures(
        state, AnswerCounters(), running=2, waiting=1, conversations={"open": 3},
        unstored={"STORE_FULL": 2},
        limits=(("memory", 1), ("disk", 2)), for_operator=for_operator,
    )  # fmt: skip
    return {measure.name.removeprefix("antiphon_host_"): measure for measure in found}


def counted() -> BatchCounters:
    batch = BatchCounters()
    batch.note_found(Found(cached_tokens=100, restored_tokens=64, shared_tokens=30))
    batch.note_step(0.012, sequences=3, rows=22, prompt_rows=18, guesses=1)
    batch.output_tokens += 2
    return batch


def test_tokens_are_counted_by_source() -> None:
    named = shown(state_of(counted()), for_operator=True)
    assert named["tokens_total"].samples == {
        "cached": 100, "shared": 30, "restored": 64, "prefilled": 18, "output": 2,
    }  # fmt: skip
    assert named["tier_bytes"].samples == {"memory": 4096, "disk": 8192}
    assert named["tier_tokens"].samples == {"memory": 64}
    assert named["batch_sequences"].samples == {"": 3}


def test_others_than_operators_learn_nothing_of_what_is_cached() -> None:
    shared, computed = counted(), counted()
    computed.shared_tokens, computed.prefilled_tokens = 0, shared.prefilled_tokens + 30
    computed.rows += 30
    tiers = (Tier("memory", 1, 0, 1), Tier("disk", 1, 0))
    states = state_of(shared), replace(state_of(computed), tiers=tiers, checkpoints=0)
    # The same load, whether a prefix was found in others' pages or computed.
    one, other = (shown(state, for_operator=False) for state in states)
    assert one.keys() == other.keys()
    assert not {name for name in one if name.startswith(("tier", "prefix", "restore", "check"))}
    for name in one.keys() - {n for n in one if n.endswith("_seconds")}:
        assert one[name].samples == other[name].samples
    assert "shared" not in one["tokens_total"].samples


def test_a_batch_is_empty_while_nothing_is_computed() -> None:
    named = shown(state_of(counted(), is_idle=True), for_operator=True)
    assert named["batch_sequences"].samples == {"": 0}


def test_answers_are_counted_by_finish_reason_and_refusals_by_reason() -> None:
    answers = AnswerCounters()
    usage = Usage(output_tokens=11, first_token_us=250_000, decode_us=150_000)
    answers.note_generation(FinishReason.STOP, usage)
    answers.note_generation(FinishReason.INTERRUPTED, Usage())
    answers.note_refusal(FinishReason.REFUSED, finish_detail(HostBusy("9 requests: too many.")))
    answers.note_refusal(FinishReason.CANCELLED, "cancelled before it began")
    assert answers.finished == {"stop": 1, "interrupted": 1}
    assert answers.refused == {HostBusy.reason: 1, "CANCELLED": 1}
    assert (answers.generations, answers.refusals) == (2, 2)
    assert (answers.first_token_s.total, answers.first_token_s.sum) == (1, 0.25)
    assert (answers.token_s.total, answers.token_s.sum) == (1, 0.015)


def test_counts_of_several_engines_are_added_field_by_field() -> None:
    one, other = counted(), counted()
    total = added(one, other)
    assert (total.steps, total.rows, total.cached_tokens) == (2, 44, 200)
    assert total.step_s.total == 2
    one.steps += 1
    assert total.steps == 2


def test_everybody_sees_that_conversations_are_not_stored() -> None:
    found = shown(state_of(counted()), for_operator=False)["conversations_unstored"]
    assert found.samples == {"STORE_FULL": 2}
