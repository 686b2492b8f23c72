"""Our host replays the recorded conversations, on the real model."""

import json
from collections.abc import Callable

import pytest

from antiphon.conformance.io.replay import CASES, FOLDER, Replayer, checks_of, recorded_replays
from antiphon.conformance.io.running import outcome_of, outcomes_of
from bench.make_replays import record
from model_host.engine.torch_engine import TorchEngine
from tests.conformance.planted_peers import REPLAYS
from tests.model_host.io.served_host import ServedHost


@pytest.mark.parametrize("numerics", ["q4", "bf16"])
async def test_our_host_finds_what_was_recorded(
    numerics: str, served: ServedHost, engine_of: Callable[[str], TorchEngine]
) -> None:
    engine = engine_of(numerics)
    async with served.host(engine) as host:
        replayer = Replayer(served.hub.address)
        outcomes = [o async for o in outcomes_of(CASES, replayer)]
        assert [(o.case.name, o.problems, o.not_run) for o in outcomes if o.problems] == []
        assert len(outcomes) == 4
        assert [o.not_run for o in outcomes if o.not_run] == [], "run python -m bench.make_replays"
        file = json.loads((FOLDER / f"smollm2-{numerics}.json").read_text())
        if engine.numerics_class.hex() == file["numerics_class"] and numerics == "bf16":
            again = await record(file["name"], served.replica, host)
            # Render digests name seals, whose profile has another context length here.
            for recorded, now in zip(file["answers"], again["answers"], strict=True):
                for name in ("answer", "context", "prompt_tokens", "token_ids"):
                    assert recorded[name] == now[name], "run python -m bench.make_replays"


async def test_bugs_of_rendering_and_sampling_are_found(served: ServedHost) -> None:
    (recording,) = (one for one in recorded_replays() if one.name == "smollm2-bf16")
    async with served.host() as host:
        replayer = Replayer(served.hub.address)
        verify, _ = checks_of([recording])
        assert not (await outcome_of(verify, replayer)).problems
        # On another numerics class no token is judged: contexts and digests remain.
        is_same = host.thread.engine.numerics_class.hex() == recording.content["numerics_class"]
        missed = []
        for bug in REPLAYS if is_same else REPLAYS[:3]:
            with bug():
                if not (await outcome_of(verify, replayer)).problems:
                    missed.append(bug.__name__)
        assert missed == []
