"""The conversations that a suite writes: members, turns and drafts that the core accepts."""

from antiphon.conformance.histories import RUN, History, forged, void_message
from replica.conversation import DraftStream, verify_draft
from replica.ids import EntryId
from replica.log import Role


def test_a_turn_counts_and_its_drafts_follow_each_other() -> None:
    history = History(b"seed")
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    request = history.ask(host.public, after=history.say())
    seal = history.seal(request, host)
    stream = DraftStream(history.id, EntryId(request.id), RUN)
    for frame in history.drafts(request, host, ("Yes", ".")):
        verify_draft(frame, host.public)
        assert stream.receive(frame)
    answer = history.answer(seal, host)
    assert history.held.order.generation_of(request.id) == answer.id
    assert history.held.log.body(answer.id).draft_digest == stream.digest


def test_a_refusal_ends_a_request_and_a_cancel_closes_one() -> None:
    history = History(b"seed")
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    request = history.ask(host.public, after=history.say())
    refused = history.refuse(request, host)
    assert history.held.order.generation_of(request.id) == refused.id
    other = history.ask(host.public)
    history.cancel(other)
    assert history.held.order.closing_cancels(other.id)


def test_a_revocation_keeps_what_it_names() -> None:
    history = History(b"seed")
    member = history.writer("member")
    history.grant(member.public, Role.WRITER)
    kept = history.say("kept", member)
    lost = history.say("lost", member)
    history.revoke(member.public, kept)
    visible = history.held.log.membership.is_visible
    assert (visible(kept), visible(lost)) == (True, False)


def test_an_entry_that_is_drawn_is_not_held() -> None:
    history = History(b"seed")
    drawn = history.draw(void_message())
    assert drawn.id not in history.held.log.entries
    assert history.last == history.genesis
    assert forged(drawn).id == drawn.id
    assert history.entries == (history.genesis,)
