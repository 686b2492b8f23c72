"""The work of a replay: chunks of bounded rows, and the pages of each pass left behind it."""

from functools import partial

from model_host.replay import Computation, ReplayPages
from replica.conversation import ReplayMode
from tests.model_host.replay.replayed import Answered, Replaying


def branches() -> Answered:
    """A conversation with a question that was asked on two branches."""
    scene = Answered()
    for text in ("a", "b"):
        scene.asks(text, 30)
    return scene


def names(replaying: Replaying, rows: int) -> list[str]:
    """Perform all work; return the name of each piece."""
    computation, seen = Computation(replaying.replay, replaying.pages, b""), []
    while computation.work is not None:
        work = computation.work
        assert isinstance(work, partial)
        seen.append(work.func.__name__.strip("_"))
        computation.receive(work(rows))
    return seen


def test_no_chunk_has_more_rows_than_are_allowed_at_that_moment():
    replaying = Replaying(branches())
    names(replaying, 16)
    assert max(rows for step in replaying.engine.steps for rows in step) == 16


def test_only_a_rebuild_compares_what_is_cached():
    assert {*names(Replaying(branches()), 512)} == {"compute", "leave"}
    rebuilt = names(Replaying(branches(), ReplayMode.REBUILD), 512)
    assert {*rebuilt} == {"compute", "compare", "leave"}
    assert rebuilt[-1] == "leave"


def test_nothing_is_left_in_memory_behind_the_last_pass():
    replaying = Replaying(branches())
    assert isinstance(replaying.pages, ReplayPages)
    names(replaying, 512)
    assert replaying.pool.used_bytes == 0
