"""One run that is being computed."""

from dataclasses import replace

import pytest

from model_host.batching.job import Job
from model_host.rendering import Context
from tests.model_host.generation.test_runner import a_plan, new_run
from tests.model_host.planned import ANY


def test_a_resumed_run_begins_behind_the_tokens_it_has():
    run = new_run(a_plan())
    run.add_token(65)
    job = Job(run, b"c" * 32, b"o" * 32, b"d" * 32, b"n" * 32)
    assert job.ids == [*run.plan.prompt, 65]
    assert job.rest == len(job.ids)


def test_a_run_is_cancelled_once_it_is_told_so():
    job = Job(new_run(a_plan()), b"c" * 32, b"o" * 32, b"d" * 32, b"n" * 32)
    assert not job.is_cancelled
    job.cancel()
    assert job.is_cancelled


def test_rows_beyond_its_tokens_are_those_of_guesses():
    job = Job(new_run(a_plan()), b"c" * 32, b"o" * 32, b"d" * 32, b"n" * 32)
    assert [job.guessed(rows) for rows in (1, job.rest, job.rest + 3)] == [0, 0, 3]


@pytest.mark.parametrize(
    ("mine", "theirs", "common"),
    [(b"", b"abc", 0), (b"abc", b"abc", 3), (b"abcd", b"abXd", 2), (b"Xabc", b"abc", 0)],
)
def test_the_common_tokens_of_two_prompts_are_counted(mine: bytes, theirs: bytes, common: int):
    jobs = []
    for prompt in (mine, theirs):
        planned = replace(a_plan(), context=Context(tuple(prompt), ANY))
        jobs.append(Job(new_run(planned), b"c" * 32, b"o" * 32, b"d" * 32, b"n" * 32))
    assert jobs[0].common_tokens(jobs[1]) == jobs[1].common_tokens(jobs[0]) == common
