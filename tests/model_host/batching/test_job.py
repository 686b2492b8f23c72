"""One run that is being computed."""

from model_host.batching.job import Job
from tests.model_host.generation.test_runner import a_plan, new_run


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
