"""Outcomes of a Push: their texts, and warnings about entries without effect (spec/04-link §9)."""

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import PublicKey, Track
from replica.link.messages import Fault
from replica.log.body import Message, Request, Role, Sampling, Speaker
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.refusals import BodyMalformed, EntriesMissing, SeqGap
from syncd.calls.pushed import for_push, warning_about
from tests.support.sample import Sample
from tests.support.writers import Writer, said

HOST = Writer(6)


@pytest.fixture
def sample() -> Sample:
    return Sample()


def asks(sample: Sample, host: PublicKey) -> Entry:
    body = Request(host, Sampling())
    return sample.add(sample.owner.write(sample.id, body, parents=[sample.genesis]))


def warned(held: Conversation, entry: Entry, *linked: PublicKey) -> str | None:
    found = warning_about(held, entry.id, lambda: linked)
    return found.reason if found is not None else None


def test_a_request_warns_where_nobody_would_answer_it(sample: Sample) -> None:
    request = asks(sample, HOST.public)
    assert warned(sample.held, request, HOST.public) == "HOST_UNGRANTED"
    sample.grant(HOST, Role.HOST)
    assert warned(sample.held, request) == "HOST_ABSENT"
    assert warned(sample.held, request, HOST.public) is None


def test_a_role_other_than_host_does_not_answer(sample: Sample) -> None:
    sample.grant(HOST, Role.WRITER)
    assert warned(sample.held, asks(sample, HOST.public), HOST.public) == "HOST_UNGRANTED"


def test_a_body_that_holds_nothing_warns(sample: Sample) -> None:
    sound = sample.say(sample.genesis)
    empty = sample.owner.write(sample.id, Message(Speaker.USER, ()), parents=[sound])
    sample.add(empty)
    data = bytes(16) + b"\xff\xff"
    header = sample.owner._header(
        Kind.MESSAGE, Track.CONVERSATION, data, conversation=sample.id, prev=empty,
        parents=[empty], lamport=1 + empty.header.lamport,
    )  # fmt: skip
    torn = sample.add(sample.owner._signed(header, data))
    assert warned(sample.held, sound) is None
    assert [warned(sample.held, one) for one in (empty, torn)] == ["BODY_VOID"] * 2


def test_a_next_step_is_one_that_a_caller_of_push_can_take() -> None:
    missing = for_push(Fault.of(EntriesMissing(missing=[bytes(32)])))
    assert "pending" not in missing.next_step
    assert missing.missing == (bytes(32),)
    assert "Hint" in for_push(Fault.of(SeqGap())).next_step
    other = Fault.of(BodyMalformed())
    assert for_push(other) is other


def test_an_entry_that_says_something_gets_no_warning(sample: Sample) -> None:
    entry = sample.owner.write(sample.id, said("x"), parents=[sample.genesis])
    sample.add(entry)
    assert warned(sample.held, entry) is None
