"""Queued work becomes durable together; work that depends on a failed commit fails with it."""

from replica.commits import Commits, Refused, Work
from replica.log.entry import Entry
from tests.support.writers import Writer, said


def line(seed: int, count: int = 2) -> list[Entry]:
    """Write a conversation of its genesis and some messages."""
    writer = Writer(seed)
    entries = [writer.genesis()]
    for _ in range(count):
        entries.append(writer.write(entries[0].conversation, said("x"), parents=[entries[-1]]))
    return entries


def work(name: str, *persist: Entry, about: Entry | None = None) -> Work[str]:
    """Return named work, by default about the conversations it persists."""
    conversations = {entry.conversation for entry in persist}
    return Work(persist, conversations | ({about.conversation} if about else set()), name)


def failing(refused: Refused[str]) -> list[str]:
    return [w.payload for w in refused.work if w.fails_with(refused.lost)]


def test_all_queued_work_shares_one_commit_and_is_performed_in_order():
    a, b = line(1), line(2)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.submit(work("word"))
    commits.submit(work("second", b[0], a[1]))
    assert commits.begin() == (a[0], b[0], a[1])
    assert [w.payload for w in commits.complete()] == ["first", "word", "second"]
    assert len(commits) == 0


def test_work_queued_during_a_commit_waits_for_the_next():
    a = line(1)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.begin()
    commits.submit(work("late", a[1]))
    assert [w.payload for w in commits.complete()] == ["first"]
    assert len(commits) == 1
    assert commits.begin() == (a[1],)


def test_a_commit_that_was_cut_off_is_begun_again_in_the_same_order():
    a = line(1)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.submit(work("word"))
    commits.begin()
    commits.submit(work("late", a[1]))
    commits.put_back()
    assert commits.begin() == (a[0], a[1])
    assert [w.payload for w in commits.complete()] == ["first", "word", "late"]


def test_work_queued_while_a_commit_fails_fails_with_it():
    a, b, c = line(1), line(2), line(3)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.begin()
    commits.submit(work("ack", about=a[0]))
    commits.submit(work("second", a[1]))
    commits.submit(work("beside", about=c[0]))
    commits.submit(work("elsewhere", b[0]))
    refused = commits.refuse()
    assert refused.lost == {a[0].conversation, b[0].conversation}
    assert [w.payload for w in refused.work] == ["first", "ack", "second", "beside", "elsewhere"]
    assert failing(refused) == ["first", "ack", "second", "elsewhere"]
    assert len(commits) == 0


def test_work_about_no_conversation_in_particular_fails_with_any_commit():
    a = line(1)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.submit(Work((), None, "flush"))
    commits.begin()
    assert failing(commits.refuse()) == ["first", "flush"]


def test_nothing_fails_with_a_commit_that_loses_nothing():
    commits: Commits[str] = Commits()
    commits.submit(Work((), None, "flush"))
    commits.begin()
    (done,) = commits.complete()
    assert not done.fails_with(frozenset())


def test_a_conversation_is_being_written_until_its_commit_ends():
    a, b = line(1), line(2)
    commits: Commits[str] = Commits()
    commits.submit(work("first", a[0]))
    commits.begin()
    commits.submit(work("second", b[0]))
    commits.submit(work("word", about=a[0]))
    assert commits.writing == {a[0].conversation, b[0].conversation}
    commits.complete()
    assert commits.writing == {b[0].conversation}
    commits.refuse()
    assert commits.writing == set()


def test_work_that_persists_fails_with_any_commit_whatever_it_is_about():
    lost = frozenset([line(1)[0].conversation])
    assert Work((line(2)[0],), frozenset(), "second").fails_with(lost)
    assert not Work((), frozenset(), "word").fails_with(lost)


def test_work_counts_until_it_is_performed():
    commits: Commits[str] = Commits()
    commits.submit(work("first"))
    assert len(commits) == 1
    commits.begin()
    commits.submit(work("second"))
    assert len(commits) == 2
    commits.complete()
    assert len(commits) == 1
