"""The hub between its links: fan-out, drafts, listings, push, revocation (spec/04-link §7)."""

import hashlib
from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.author import Author
from replica.conversation.drafts import (
    Draft,
    DraftStream,
    Progress,
    extend_digest,
    sign_draft,
    start_digest,
)
from replica.conversation.sealing import sealable
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.link.events import DraftReceived, EntriesAdmitted, EntryFailed, Listed
from replica.link.messages import Close, Entries, Fault, Hello, Listing
from replica.log.body import (
    FinishReason,
    Generation,
    Grant,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Text,
)
from replica.log.entry import Entry
from replica.testing import Network, Peer
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.writers import Writer, said

HUB_KEY = PublicKey(b"h" * 32)
PROFILE = Digest(b"p" * 32)


def of(kind: type, messages: list) -> list:
    return [message for message in messages if isinstance(message, kind)]


class Scene:
    """An owner, a reader and a host, all linked and in one conversation."""

    def __init__(self) -> None:
        self.owner, self.reader, self.host = Writer(1), Writer(2), Writer(3)
        self.hub = Hub(HUB_KEY, Policy())
        self.network = Network(self.hub)
        self.owners = self.network.connect(self.owner.public)
        genesis = self.owner.genesis()
        self.id = ConversationId(genesis.id)
        self.genesis = genesis
        reader = self.member(Grant(self.reader.public, Role.READER), genesis)
        host = self.member(Grant(self.host.public, Role.HOST), reader)
        self.owners.append(genesis, reader, host)
        self.owners.open(self.id)
        self.members_head = host
        self.readers = self.network.connect(self.reader.public)
        self.readers.open(self.id)
        self.hosts = self.network.connect(self.host.public)
        self.hosts.open(self.id)

    def member(self, change: Grant | Revocation, parent: Entry) -> Entry:
        return self.owner.write(self.id, Member(change), parents=[parent])

    def revoke(self, key: PublicKey) -> Entry:
        return self.member(Revocation(key), self.members_head)

    def say(self, text: str = "hello") -> Entry:
        last = self.owner.last(self.id) or self.genesis
        entry = self.owner.write(self.id, said(text), parents=[last])
        self.owners.append(entry)
        return entry

    def ask(self) -> EntryId:
        """Ask and let the host seal; returns the request."""
        message = self.say()
        body = Request(self.host.public, Sampling())
        request = self.owner.write(self.id, body, parents=[message])
        self.owners.append(request)
        held = self.hosts.shelf[self.id]
        ready = sealable(held, request.id)
        assert ready is not None
        seal = Seal(
            request.id,
            None,
            ready.entries,
            PROFILE,
            ready.context_digest,
            PROFILE,
            tuple(1 for _ in ready.entries),
            ready.membership_heads,
        )
        author = Author(self.host.key, self.host.epoch)
        self.seal = author.write(held, seal, parents=(request.id,), salt=bytes(16), time_ms=0)
        self.hosts.append(self.seal)
        return request.id

    def answer(self, run: int = 7) -> Entry:
        held = self.hosts.shelf[self.id]
        author = Author(self.host.key, self.host.epoch)
        body = Generation((1,), (Text("a"),), 1, FinishReason.STOP, run=run)
        entry = author.write(held, body, parents=(self.seal.id,), salt=bytes(16), time_ms=0)
        self.hosts.append(entry)
        return entry


def frames(scene: Scene, request: EntryId, pieces: list[tuple[int, ...]], run: int = 7):
    """Sign a draft of these pieces, one byte of text per token."""
    digest, at, found = start_digest(request, run), 0, []
    for piece in pieces:
        digest = extend_digest(digest, piece)
        frame = Draft(scene.id, request, run, at, piece, at, b"x" * len(piece), digest)
        found.append(sign_draft(frame, scene.host.key))
        at += len(piece)
    return found


def stream(scene: Scene, *drafts: Draft) -> None:
    for draft in drafts:
        scene.hosts.perform(scene.hosts.link.send_draft(draft))


def read(peer: Peer) -> list[Draft]:
    return [event.draft for event in of(DraftReceived, peer.events)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- entries --------------------------------------------------------------------


def test_what_one_link_brings_the_others_are_sent(scene: Scene):
    entry = scene.say()
    for peer in (scene.readers, scene.hosts):
        assert entry.id in peer.shelf[scene.id].log.entries
    assert entry not in [e for m in of(Entries, scene.owners.received) for e in m.entries]


def test_entries_that_came_together_go_on_together(scene: Scene):
    last, line = scene.genesis, []
    for number in range(5):
        last = scene.owner.write(scene.id, said(str(number)), parents=[last])
        line.append(last)
    effects, _ = scene.hub.push(scene.owner.public, Entries(scene.id, tuple(line)), 0.0)
    to_reader = [m for link_id, m in effects.send if link_id == scene.readers.link_id]
    assert to_reader == [Entries(scene.id, tuple(line))]


def test_everything_sent_on_is_persisted_in_the_same_effects(scene: Scene):
    entry = scene.owner.write(scene.id, said("x"), parents=[scene.genesis])
    effects = scene.hub.receive(scene.owners.link_id, Entries(scene.id, (entry,)), 0.0)
    assert effects.persist == (entry,)
    assert {link_id for link_id, _ in effects.send} == set(scene.hub.links)


def test_a_link_that_has_not_opened_the_conversation_is_sent_nothing(scene: Scene):
    idle = scene.network.connect(scene.reader.public)
    scene.say()
    assert not of(Entries, idle.received)


def test_a_hub_goes_on_from_its_store(scene: Scene):
    scene.say()
    again = Hub(HUB_KEY, Policy())
    again.load(scene.id, scene.network.stored)
    assert again.shelf[scene.id].log.digest == scene.hub.shelf[scene.id].log.digest


# --- members --------------------------------------------------------------------


def test_a_revoked_member_is_told_the_conversation_is_closed_and_gets_no_more(scene: Scene):
    scene.owners.append(scene.revoke(scene.reader.public))
    entry = scene.say("in private")
    (close,) = of(Close, scene.readers.received)
    assert close.conversation == scene.id
    assert close.fault.reason == "CONVERSATION_NOT_FOUND"
    assert entry.id not in scene.readers.shelf[scene.id].log.entries


def test_a_revoked_member_that_opens_again_is_denied(scene: Scene):
    scene.owners.append(scene.revoke(scene.reader.public))
    scene.readers.open(scene.id)
    reasons = {fault.reason for fault in of(Fault, scene.readers.received)}
    assert reasons == {"CONVERSATION_NOT_FOUND"}
    assert scene.revoke  # and its copy of the log is its own to keep
    assert scene.readers.shelf[scene.id].log.genesis is not None


def test_a_revoked_member_reads_no_drafts(scene: Scene):
    request = scene.ask()
    scene.owners.append(scene.revoke(scene.reader.public))
    stream(scene, *frames(scene, request, [(1, 2)]))
    assert read(scene.owners)
    assert not read(scene.readers)


def test_what_a_revoked_member_writes_is_not_taken(scene: Scene):
    scene.owners.append(scene.revoke(scene.reader.public))
    entry = scene.reader.write(scene.id, said("still here"), parents=[scene.genesis])
    scene.readers.send(Entries(scene.id, (entry,)))
    assert entry.id not in scene.hub.shelf[scene.id].log.entries


# --- listings -------------------------------------------------------------------


def test_a_follower_is_told_of_conversations_once_and_of_new_ones_as_it_joins(scene: Scene):
    newcomer = Writer(5)
    peer = scene.network.connect(newcomer.public)
    assert not of(Listing, peer.received)
    grant = scene.member(Grant(newcomer.public, Role.WRITER), scene.members_head)
    scene.owners.append(grant)
    (listed,) = of(Listed, peer.events)
    assert [item.conversation for item in listed.items] == [scene.id]
    scene.owners.append(scene.member(Grant(Writer(6).public, Role.WRITER), grant))
    assert len(of(Listing, peer.received)) == 1


def test_a_follower_is_told_on_arrival_what_it_is_a_member_of(scene: Scene):
    peer = scene.network.connect(scene.reader.public)
    (listing,) = of(Listing, peer.received)
    assert [item.conversation for item in listing.items] == [scene.id]
    assert listing.items[0].digest == scene.hub.shelf[scene.id].log.digest


def test_who_does_not_follow_is_told_nothing(scene: Scene):
    peer = scene.network.connect(scene.reader.public, hello=Hello((1,), follow=False))
    scene.owners.append(scene.member(Grant(scene.reader.public, Role.WRITER), scene.members_head))
    assert not of(Listing, peer.received)


# --- drafts ---------------------------------------------------------------------


def test_drafts_reach_every_reader_in_order(scene: Scene):
    request = scene.ask()
    sent = frames(scene, request, [(1, 2), (3,), (4, 5)])
    stream(scene, *sent)
    assert read(scene.readers) == read(scene.owners) == sent


def test_drafts_wait_for_the_seal(scene: Scene):
    message = scene.say()
    request = scene.owner.write(scene.id, Request(scene.host.public, Sampling()), parents=[message])
    scene.owners.append(request)
    stream(scene, *frames(scene, request.id, [(1,)]))
    assert not read(scene.readers)


def test_a_late_reader_gets_the_draft_from_its_start(scene: Scene):
    request = scene.ask()
    sent = frames(scene, request, [(1, 2), (3,)])
    stream(scene, *sent)
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(late) == sent


def test_a_draft_is_dropped_once_its_generation_is_here(scene: Scene):
    request = scene.ask()
    first, second = frames(scene, request, [(1,), (2,)])
    stream(scene, first)
    assert scene.hub.shelf[scene.id].drafts
    scene.answer()
    assert not scene.hub.shelf[scene.id].drafts
    stream(scene, second)
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(scene.readers) == [first]
    assert not read(late)


def test_only_the_requests_host_may_stream(scene: Scene):
    request = scene.ask()
    (draft,) = frames(scene, request, [(1,)])
    scene.owners.send(draft)
    assert of(Fault, scene.owners.received)[-1].reason == "ROLE_FORBIDS"
    assert not read(scene.readers)


def test_a_draft_with_a_wrong_signature_goes_no_further(scene: Scene):
    request = scene.ask()
    (draft,) = frames(scene, request, [(1,)])
    stream(scene, replace(draft, data=b"y"))
    assert of(Fault, scene.hosts.received)[-1].reason == "SIGNATURE_INVALID"
    assert not read(scene.readers)


def test_a_stranger_learns_nothing_by_streaming(scene: Scene):
    request = scene.ask()
    stranger = scene.network.connect(Writer(66).public)
    (draft,) = frames(scene, request, [(1,)])
    before = len(stranger.received)
    stranger.send(draft)
    stranger.send(replace(draft, conversation=ConversationId(b"?" * 32)))
    assert len(stranger.received) == before


def test_a_new_run_replaces_the_one_before(scene: Scene):
    request = scene.ask()
    stream(scene, *frames(scene, request, [(1, 2), (3,)], run=7))
    again = frames(scene, request, [(8,), (9,)], run=8)
    stream(scene, *again)
    assert read(scene.readers)[-2:] == again
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert read(late) == again


def test_a_late_frame_of_an_old_run_erases_nothing(scene: Scene):
    request = scene.ask()
    old = frames(scene, request, [(1,), (2,)], run=7)
    new = frames(scene, request, [(8,), (9,)], run=8)
    stream(scene, old[0], new[0], old[1], new[1])
    assert read(scene.readers) == [old[0], *new]


def test_progress_before_the_first_token_is_kept_only_while_it_is_the_newest(scene: Scene):
    request = scene.ask()
    start = start_digest(request, 7)
    reports = [
        sign_draft(
            Draft(scene.id, request, 7, 0, (), 0, b"", start, progress=Progress(9, 0, 0, done)),
            scene.host.key,
        )
        for done in (3, 6)
    ]
    stream(scene, *reports, *frames(scene, request, [(1,)]))
    assert len(read(scene.readers)) == 3
    late = scene.network.connect(scene.reader.public)
    late.open(scene.id)
    assert [d.token_ids for d in read(late)] == [(1,)]


def test_a_draft_stream_ends_in_the_digest_the_generation_states():
    request = EntryId(hashlib.sha256(b"r").digest())
    assembled = DraftStream(ConversationId(b"c" * 32), request, 1)
    assert assembled.digest == start_digest(request, 1)
    assert extend_digest(extend_digest(assembled.digest, (1,)), (2,)) == extend_digest(
        assembled.digest, (1, 2)
    )


# --- push -----------------------------------------------------------------------


def test_a_push_says_per_entry_what_became_of_it(scene: Scene):
    line = [scene.owner.write(scene.id, said("1"), parents=[scene.genesis])]
    line.append(scene.owner.write(scene.id, said("2"), parents=[line[0]]))
    line.append(scene.owner.write(scene.id, said("3"), parents=[line[1]]))
    forged = Entry(line[0].header_bytes, bytes(64), line[0].body, line[0].id, line[0].header)
    effects, outcomes = scene.hub.push(scene.owner.public, Entries(scene.id, (forged,)), 0.0)
    assert outcomes[forged.id].reason == "SIGNATURE_INVALID"
    effects, outcomes = scene.hub.push(
        scene.owner.public, Entries(scene.id, (line[0], line[2])), 0.0
    )
    assert effects.persist == (line[0],)
    assert outcomes[line[0].id] is None
    assert outcomes[line[2].id].reason == "ENTRIES_MISSING"
    assert outcomes[line[2].id].missing == (line[1].id,)


def test_a_push_keeps_nothing_that_would_have_to_wait(scene: Scene):
    first = scene.owner.write(scene.id, said("1"), parents=[scene.genesis])
    second = scene.owner.write(scene.id, said("2"), parents=[first])
    scene.hub.push(scene.owner.public, Entries(scene.id, (second,)), 0.0)
    assert not scene.hub.shelf[scene.id].log.pending


def test_a_push_of_what_waits_for_another_link_is_not_called_durable(scene: Scene):
    first = scene.owner.write(scene.id, said("1"), parents=[scene.genesis])
    second = scene.owner.write(scene.id, said("2"), parents=[first])
    scene.owners.send(Entries(scene.id, (second,)))
    assert scene.hub.shelf[scene.id].log.pending
    _, outcomes = scene.hub.push(scene.owner.public, Entries(scene.id, (second,)), 0.0)
    assert outcomes[second.id].reason == "ENTRIES_MISSING"


def test_a_push_again_is_the_same_push(scene: Scene):
    entry = scene.owner.write(scene.id, said("1"), parents=[scene.genesis])
    message = Entries(scene.id, (entry,))
    scene.hub.push(scene.owner.public, message, 0.0)
    effects, outcomes = scene.hub.push(scene.owner.public, message, 0.0)
    assert effects.persist == ()
    assert outcomes == {entry.id: None}


def test_a_stranger_can_push_nothing(scene: Scene):
    stranger = Writer(66)
    first = stranger.write(scene.id, said("1"), parents=[scene.genesis])
    second = stranger.write(scene.id, said("2"), parents=[first])
    effects, outcomes = scene.hub.push(stranger.public, Entries(scene.id, (first, second)), 0.0)
    assert {fault.reason for fault in outcomes.values()} == {"CONVERSATION_NOT_FOUND"}
    assert effects.persist == ()


# --- ends -----------------------------------------------------------------------


def test_an_idle_link_is_ended_and_the_others_stay(scene: Scene):
    scene.network.peers.pop(scene.readers.link_id)  # it has fallen silent
    for _ in range(4):
        scene.network.advance(limits.HEARTBEAT_S)
    assert set(scene.hub.links) == {scene.owners.link_id, scene.hosts.link_id}


def test_leaving_a_conversation_ends_its_entries_not_the_link(scene: Scene):
    scene.readers.perform(scene.readers.link.leave(scene.id))
    scene.say()
    assert not [e for e in of(EntriesAdmitted, scene.readers.events) if len(e.entries) == 1]
    assert not of(EntryFailed, scene.readers.events)


def test_a_conversation_the_hub_forgets_is_closed_on_every_link(scene: Scene):
    fault = Fault("STORE_FULL", retryable=True)
    scene.network.perform(scene.hub.forget(scene.id, fault))
    for peer in (scene.owners, scene.readers, scene.hosts):
        assert of(Close, peer.received) == [Close(scene.id, fault)]
