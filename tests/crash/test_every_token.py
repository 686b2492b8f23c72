"""kill -9 after each token; tests/crash/every_token.py has the long form."""

from pathlib import Path

from tests.crash.every_token import kill_at_every_token


async def test_a_host_killed_at_every_token_gives_each_reader_one_answer(tmp_path: Path):
    killed = await kill_at_every_token(tmp_path, tokens=8)
    killed.check()
    assert killed.kills >= 2
