"""Hints: the place of an author's next entry (spec/04-link §9)."""

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.limits import OPEN_LOOKED_AT
from replica.log.body import Cancel, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from syncd.links.hint import Answered, Hint, OwnHead, answers, hint_for
from tests.support.branches import Scene
from tests.support.call_count import calls
from tests.support.sample import Sample
from tests.support.stories import Story, answer, cut_at
from tests.support.writers import Writer, said


class Asked(Sample):
    """A conversation with a host in it."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Writer(6)
        self.grant(self.host, Role.HOST)

    def sealed(self) -> Entry:
        """Say something, ask, and let the host seal both."""
        message = self.say(self.genesis)
        return self.seal(self.host, self.ask(self.host, message), message)

    def revoke(self, writer: Writer, *kept: Entry) -> None:
        """Revoke a key; what it wrote up to the entries given stays."""
        body = Member(Revocation(writer.public, tuple(cut_at(e) for e in kept)))
        heads = self.at(*self.held.log.membership_heads())
        self.add(self.owner.write(self.id, body, parents=heads, listed=kept))

    def hint(self) -> Hint:
        return hint_for(self.held, self.owner.public)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def written_from(hint: Hint, held: Conversation, author: Writer) -> Entry:
    """Write an entry from a hint, on a fresh lane."""
    entries = held.log.entries
    return author.write(
        held.id,
        said("next"),
        parents=[entries[i] for i in hint.parents],
        basis=entries[hint.tip] if hint.tip is not None else None,
    )


def test_before_the_first_seal_the_next_entry_follows_all_messages(asked: Asked) -> None:
    assert (asked.hint().tip, asked.hint().parents) == (None, (asked.genesis.id,))
    first, second = asked.say(asked.genesis), asked.say(asked.genesis)
    assert asked.hint().parents == tuple(sorted((first.id, second.id)))
    assert asked.hint().lamport == 1 + second.header.lamport


def test_the_tip_is_the_newest_seal_and_an_answer_is_followed(asked: Asked) -> None:
    seal = asked.sealed()
    assert asked.hint().tip == seal.id
    assert asked.hint().parents == seal.header.parents  # the request: there is no answer yet
    generation = asked.add(asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal))
    assert (asked.hint().tip, asked.hint().parents) == (seal.id, (generation.id,))


def test_of_two_branches_the_hint_is_for_the_one_with_the_latest_activity(asked: Asked) -> None:
    first = asked.sealed()
    beside = asked.ask(asked.host, asked.genesis)
    second = asked.seal(asked.host, beside)
    assert asked.held.order.nodes.keys() == {first.id, second.id}
    assert (asked.hint().tip, asked.hint().parents) == (second.id, (beside.id,))


def test_the_lamport_counts_the_basis(asked: Asked) -> None:
    seal = asked.sealed()
    hint = asked.hint()
    assert all(asked.held.log.entries[i].header.lamport < seal.header.lamport for i in hint.parents)
    assert hint.lamport == 1 + seal.header.lamport
    entry = asked.add(written_from(hint, asked.held, Writer(1, epoch=2)))
    assert entry.id in asked.held.log.entries


def test_a_hint_names_the_lanes_of_its_reader_alone(asked: Asked) -> None:
    seal = asked.sealed()
    assert hint_for(asked.held, asked.host.public).own_heads == (
        OwnHead(seal.position, seal.header.lamport),
    )
    own = {head.position.id for head in asked.hint().own_heads}
    assert own == {asked.genesis.id, *asked.held.log.membership_heads(), *seal.header.parents}
    assert hint_for(asked.held, Writer(9).public).own_heads == ()


def test_a_hint_names_no_refused_entry_of_a_reader(asked: Asked) -> None:
    """A client that knows its entries by their lanes alone took it for durable (02 §7)."""
    reader = Writer(9)
    asked.grant(reader, Role.READER)
    entry = asked.add(reader.write(asked.id, said("x"), parents=[asked.genesis]))
    assert hint_for(asked.held, reader.public).own_heads == ()
    asked.grant(reader, Role.WRITER)
    (head,) = hint_for(asked.held, reader.public).own_heads
    assert head.position.id == entry.id


def test_a_hint_names_both_ends_of_a_forked_lane(asked: Asked) -> None:
    first = asked.say(asked.genesis)
    twin = asked.owner.restored()
    left = asked.say(first)
    right = asked.add(twin.write(asked.held.id, said("y"), parents=[first]))
    assert {left.id, right.id} <= {head.position.id for head in asked.hint().own_heads}


def test_a_hint_of_many_own_heads_names_the_latest(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane may be forked without end, and changes of members begin any number of lanes."""
    monkeypatch.setattr(limits, "OWN_HEADS_MAX", 9)
    monkeypatch.setattr(limits, "FORK_HEADS_MAX", 4)
    begun = [Writer(1, epoch=number) for number in range(100, 108)]
    lanes = [asked.add(w.write(asked.id, said("x"), parents=[asked.genesis])) for w in begun]
    twins = [begun[5].restored() for _ in range(40)]
    forks = [
        asked.add(twin.write(asked.id, said(str(number)), parents=[asked.genesis]))
        for number, twin in enumerate(twins)
    ]
    latest = sorted(forks, key=lambda entry: entry.order_key)[-4:]
    named = {head.position.id for head in asked.hint().own_heads}
    assert named == {entry.id for entry in (*lanes[7:5:-1], *latest, *lanes[4:1:-1])}


def test_the_hint_of_a_lane_that_is_forked_without_end_costs_the_same(asked: Asked) -> None:
    twin = Writer(1, epoch=100)

    def fork(count: int) -> None:
        for _ in range(count):
            one, number = twin.restored(), len(asked.held.log)
            asked.add(one.write(asked.id, said(str(number)), parents=[asked.genesis]))

    fork(100)
    asked.hint()
    few = calls(asked.hint)
    fork(300)
    asked.hint()
    assert calls(asked.hint) < 1.1 * few


def test_a_hint_names_the_membership_heads(asked: Asked) -> None:
    (granted,) = asked.held.log.membership_heads()
    assert asked.hint().membership_heads == (granted,) != (asked.genesis.id,)


@pytest.mark.parametrize("seed", range(12))
def test_an_entry_written_from_a_hint_is_admitted(seed: int) -> None:
    history = Story(seed)
    for _ in range(8):
        history.grow(8)
        author = Writer(1, epoch=1000 + len(history.entries))
        hint = hint_for(history.held, author.public)
        entry = written_from(hint, history.held, author)
        assert entry.header.lamport == hint.lamport
        history.held.admit(entry)  # a wrong place would be refused
        if entry.id in history.held.log.entries:  # else its author is revoked by now
            history.entries.append(entry)


# --- the request that still gets an answer ------------------------------------------


def test_a_request_is_open_until_its_answer_comes(asked: Asked) -> None:
    message = asked.say(asked.genesis)
    assert asked.hint().open_request is None
    request = asked.ask(asked.host, message)
    assert asked.hint().open_request == request.id
    seal = asked.seal(asked.host, request, message)
    assert asked.hint().open_request == request.id
    asked.add(asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal))
    assert asked.hint().open_request is None


def test_a_request_that_waits_for_the_answer_is_open_after_it(asked: Asked) -> None:
    seal = asked.sealed()
    (first,) = seal.header.parents
    later = asked.ask(asked.host, asked.held.log.entries[first])
    assert asked.hint().open_request == first
    asked.add(asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal))
    assert asked.hint().open_request == later.id


def test_a_refused_or_cancelled_request_is_not_open(asked: Asked) -> None:
    refused = asked.ask(asked.host, asked.genesis)
    asked.add(asked.host.write(asked.held.id, answer(), parents=[refused]))
    assert asked.hint().open_request is None
    closed = asked.ask(asked.host, asked.genesis)
    assert asked.hint().open_request == closed.id
    asked.add(asked.owner.write(asked.held.id, Cancel(), parents=[closed]))
    assert asked.hint().open_request is None


def test_a_request_that_no_host_may_answer_is_not_open(asked: Asked) -> None:
    stranger = Writer(9)
    asked.ask(stranger, asked.genesis)
    assert asked.hint().open_request is None
    open_one = asked.ask(asked.host, asked.genesis)
    assert asked.hint().open_request == open_one.id
    asked.revoke(asked.host)
    assert asked.hint().open_request is None


def test_nothing_is_open_behind_the_seal_of_a_host_that_is_gone(asked: Asked) -> None:
    seal = asked.sealed()
    (first,) = seal.header.parents
    asked.ask(asked.host, asked.held.log.entries[first])
    assert asked.hint().open_request == first
    asked.revoke(asked.host, seal)
    assert asked.hint().open_request is None


def test_a_request_of_another_branch_is_not_open_here(asked: Asked) -> None:
    asked.sealed()
    beside = asked.ask(asked.host, asked.genesis)
    seal = asked.seal(asked.host, beside)
    asked.add(asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal))
    assert asked.hint().tip == seal.id
    assert asked.hint().open_request is None  # the first branch still waits for its answer


def test_the_latest_requests_are_those_of_the_log_whatever_the_order_of_their_arrival(
    asked: Asked,
) -> None:
    writers = [Writer(40 + number) for number in range(OPEN_LOOKED_AT + 4)]
    for writer in writers:
        asked.grant(writer, Role.WRITER)
    body = Request(asked.host.public, Sampling())
    requests = [w.write(asked.held.id, body, parents=[asked.genesis]) for w in writers]
    requests.sort(key=lambda entry: entry.order_key)
    for request in reversed(requests):
        asked.add(request)
    assert asked.hint().open_request == requests[-OPEN_LOOKED_AT].id


def test_requests_with_a_seal_do_not_hide_one_that_will_get_one() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    waiting = scene.ask(answer, basis=base)
    tip = scene.seal(scene.ask(answer, basis=base))
    for _ in range(OPEN_LOOKED_AT):
        scene.seal(scene.ask(scene.say(answer), basis=base, fork=True))
    scene.answer(tip)
    hint = hint_for(scene.held, scene.ada.public)
    assert (hint.tip, hint.open_request) == (tip.id, waiting.id)


def test_a_request_queued_behind_a_fork_extends_no_branch_that_was_left() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    _, _, last = scene.turn(answer, basis=base)
    fork = scene.ask(answer, basis=base, fork=True)
    scene.ask(fork, basis=base)
    assert hint_for(scene.held, scene.ada.public).open_request is None
    beside = scene.ask(last, basis=base)
    assert hint_for(scene.held, scene.ada.public).open_request == beside.id


# --- answers --------------------------------------------------------------------------


def test_a_generation_answers_the_request_of_its_seal(asked: Asked) -> None:
    seal = asked.sealed()
    told = asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal)
    asked.add(told)
    second = asked.add(asked.host.write(asked.held.id, answer(), parents=[seal], basis=seal))
    (request,) = seal.header.parents
    assert answers(asked.held, [seal, told, second]) == (
        Answered(asked.held.id, request, seal.id, told.id),
    )


def test_a_refusal_answers_a_request_without_a_seal(asked: Asked) -> None:
    request = asked.ask(asked.host, asked.genesis)
    refusal = asked.add(asked.host.write(asked.held.id, answer(), parents=[request]))
    assert answers(asked.held, [refusal]) == (
        Answered(asked.held.id, request.id, None, refusal.id),
    )
