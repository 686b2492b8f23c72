"""Templates run in a process that may be killed doing so: no template hangs or ends a host."""

import os
import signal
import sys
import time
from dataclasses import replace

import pytest

from model_host.errors import RenderingInterrupted
from model_host.io.profiles import template_runner
from model_host.io.profiles.offers import _checked
from model_host.io.profiles.template_runner import TemplateRunner
from model_host.refusals import TemplateUnsupported
from model_host.rendering import Renderer
from model_host.rendering.template import Template, check_template, find_pairs
from replica.errors import HostError
from replica.log import FinishReason
from tests.model_host.io.served_host import ServedHost
from tests.model_host.rendering.test_render import CHATML, ENCODER
from tests.model_host.templates import LLAMA31, QWEN
from tests.support.callers import until
from tests.support.signals import TurnedOff, blocked, ignored
from tests.support.talk import Talk

EACH = "{% for m in messages %}{{ m.content }}{% endfor %}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CALLS = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
HUGE = '{% set x = "a" * 8000000000 %}'
WIDE = "{{ 'a'|center(8000000000) }}"
COUNTING = "{% for m in messages %}{{ messages|length }}{{ m.content }}{% endfor %}"
QUICK_S = 30.0
CPU_S = 0.15
"""Time of a template that takes too much; others take a twentieth at most."""
ONE = [{"content": "a"}]


def later(count: int) -> str:
    return "{% if messages|length == " + str(count) + " %}" + LOOPS + "{% endif %}" + COUNTING


@pytest.mark.parametrize("source", [CHATML, LLAMA31, QWEN, COUNTING])
def test_a_template_renders_there_as_it_does_here(source: str) -> None:
    here = Template(source, bos_token="<s>")
    renderer, report, _ = _checked(source, "<s>", "", ENCODER)
    assert renderer.template.digest == here.digest
    assert report == check_template(here, ENCODER)
    assert renderer.is_local == (find_pairs(here) is not None)
    assert renderer.turns == Renderer.load(here, ENCODER).turns
    roles = ["system", "user", "assistant", "user"]
    for header in (True, False):
        assert renderer.template.literals(roles, header=header) == here.literals(
            roles, header=header
        )


@pytest.mark.parametrize(
    "source",
    [LOOPS + EACH, CALLS + EACH, HUGE + EACH, WIDE + EACH, later(4)],
    ids=["loops", "calls", "huge", "wide", "at some length"],
)
def test_a_template_that_would_hang_or_end_the_host_is_refused_at_load(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_runner, "CPU_S_MAX", CPU_S)
    began = time.monotonic()
    with pytest.raises(TemplateUnsupported, match="too much"):
        _checked(source, "", "", ENCODER)
    assert time.monotonic() - began < QUICK_S


@pytest.mark.parametrize("turned_off", [ignored, blocked])
def test_the_time_of_a_template_ends_where_its_signal_is_turned_off(
    turned_off: TurnedOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_runner, "CPU_S_MAX", CPU_S)
    monkeypatch.setattr(template_runner, "WALL_S_MAX", QUICK_S)
    with turned_off(signal.SIGPROF), pytest.raises(TemplateUnsupported, match="too much"):
        _checked(LOOPS + EACH, "", "", ENCODER)


def test_a_context_for_which_a_template_takes_too_long_is_refused_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(template_runner, "CPU_S_MAX", CPU_S)
    template = _checked(later(6), "", "", ENCODER)[0].template
    for _ in range(2):
        assert template.literals(["user"] * 5, header=False)[0] == "5"
        with pytest.raises(TemplateUnsupported, match="too much") as refused:
            template.literals(["user"] * 6, header=False)
        assert refused.value.is_costly
        assert template.literals(["user"] * 7, header=False)[0] == "7"


def test_what_a_template_refuses_keeps_its_process() -> None:
    refusing = "{% if messages|length == 1 %}{{ raise_exception('alone') }}{% endif %}" + EACH
    runner = TemplateRunner(refusing, bos_token="", eos_token="")
    one, two = [{"content": "a"}], [{"content": "a"}, {"content": "b"}]
    assert runner.render(two, header=False) == "ab"
    process = runner._process
    with pytest.raises(TemplateUnsupported, match="alone"):
        runner.render(one, header=False)
    assert runner.render(two, header=False) == "ab"
    assert runner._process is process
    runner.loaded()


def test_a_process_ends_with_the_load_and_with_its_runner() -> None:
    runner = TemplateRunner(EACH, bos_token="", eos_token="")
    runner.render([], header=False)
    assert runner._process is not None
    first = runner._process
    runner.loaded()
    assert first.returncode is not None
    assert runner.render([{"content": "a"}], header=False) == "a"
    second = runner._process
    assert second is not None
    del runner
    assert second.returncode is not None


def test_an_installation_without_the_process_is_not_blamed_on_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for program in ("/nowhere", "/bin/false"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(HostError, match="does not run here") as caught:
            _checked(EACH + program, "", "", ENCODER)
        assert not isinstance(caught.value, TemplateUnsupported)


def rendering(source: str = COUNTING) -> TemplateRunner:
    """Return a runner behind its load, with a process."""
    runner = TemplateRunner(source, bos_token="", eos_token="")
    runner.loaded()
    assert runner.render(ONE, header=False) == "1a"
    return runner


def send(runner: TemplateRunner, number: signal.Signals) -> None:
    """Send a signal to the process of a runner, as others may."""
    assert runner._process is not None
    os.kill(runner._process.pid, number)


def test_a_process_that_reads_nothing_has_the_time_of_one_that_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe holds 64 KiB; the frame of a long context is longer."""
    runner, long = rendering(), "a" * (1 << 17)
    monkeypatch.setattr(template_runner, "WALL_S_MAX", 0.1)
    monkeypatch.setattr(template_runner, "ATTEMPTS", 1)
    for content in (long, "a"):
        send(runner, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(RenderingInterrupted) as caught:
            runner.render([{"content": content}], header=False)
        assert caught.value.retryable
        assert time.monotonic() - began < QUICK_S
        with monkeypatch.context() as patient:
            patient.setattr(template_runner, "WALL_S_MAX", QUICK_S)
            assert runner.render([{"content": long}], header=False) == "1" + long


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_others_end_costs_no_context(number: signal.Signals) -> None:
    runner = rendering()
    for _ in range(3):
        send(runner, number)
        assert runner.render(ONE, header=False) == "1a"


def test_a_process_that_others_end_again_and_again_is_not_blamed_on_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the machine has no memory: each process is ended before it is asked."""
    runner, ask = rendering(), TemplateRunner._ask
    is_short = True

    def end_first(one, process, frame):
        if is_short and "messages" in frame:
            process.kill()
        return ask(one, process, frame)

    monkeypatch.setattr(TemplateRunner, "_ask", end_first)
    for _ in range(2):
        with pytest.raises(RenderingInterrupted) as caught:
            runner.render(ONE, header=False)
        assert not isinstance(caught.value, TemplateUnsupported)
    is_short = False
    assert runner.render(ONE, header=False) == "1a"


def test_a_process_that_others_end_at_load_refuses_no_template() -> None:
    runner = TemplateRunner(EACH, bos_token="", eos_token="")
    assert runner.render(ONE, header=False) == "a"
    send(runner, signal.SIGKILL)
    assert runner.render(ONE, header=False) == "a"
    runner.loaded()


async def test_a_host_ends_whose_template_process_is_stopped(served: ServedHost) -> None:
    file = replace(served.engine.file, template=COUNTING)
    async with served.host(replace(served.engine, file=file)) as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("And?", tokens=1)
        process = host.offer.runner._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        await talk.say("And?")
        await talk.request(tokens=1)
        await until(lambda: host.handler.rendering.is_busy)
        began = time.monotonic()
    assert time.monotonic() - began < QUICK_S
    assert process.returncode == -signal.SIGKILL


async def test_a_host_refuses_the_context_that_its_template_hangs_at_and_answers_others(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_runner, "CPU_S_MAX", CPU_S)
    file = replace(served.engine.file, template=later(8))
    async with served.host(replace(served.engine, file=file)) as host:
        talk, other = [await Talk.begin(served.replica, host.key) for _ in range(2)]
        for _ in range(3):
            _, answer = await talk.ask("And?", tokens=1)
            assert answer.finish_reason == FinishReason.LENGTH
        _, refused = await talk.ask("And?", tokens=1)
        assert refused.finish_reason == FinishReason.REFUSED
        assert refused.finish_detail.startswith("TEMPLATE_UNSUPPORTED: the template takes too much")
        _, answer = await other.ask("And?", tokens=1)
        assert answer.finish_reason == FinishReason.LENGTH
