"""A hub that holds two of five conversations in memory answers for all of them (04-link §7)."""

import pytest

from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.link.messages import Entries, Fault, Hello, Listing, Message, Open, Opened
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from replica.refusals import ConversationUnknown
from replica.testing import of
from syncd.calls import queries
from syncd.hub import Hub
from syncd.links.connected import LinkId
from syncd.links.fan_out import HubEffects
from syncd.links.listing import list_of
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, index
from tests.support.writers import Writer, said

ADA, BOB, EVE = Writer(1), Writer(2), Writer(3)


class Bounded:
    """A hub with a bound on its memory, driven over a disk that is a dictionary."""

    def __init__(self) -> None:
        self.hub = Hub(HUB_KEY, Policy(conversations_in_memory_max=2))
        self.disk: dict[ConversationId, list[Entry]] = {}
        self.loads: list[ConversationId] = []
        self.writers = [Writer(1, epoch=number) for number in range(1, 6)]
        self.logs: list[list[Entry]] = []
        for writer in self.writers:
            genesis = writer.genesis()
            grant = Member(Grant(BOB.public, Role.READER))
            log = [genesis, writer.write(genesis.conversation, grant, parents=[genesis])]
            assert set(self.push(ADA.public, *log).values()) == {None}
            self.logs.append(log)

    @property
    def ids(self) -> list[ConversationId]:
        return [log[0].conversation for log in self.logs]

    def ensure_loaded(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> None:
        if self.hub.needs_load(peer, conversation, message):
            self.loads.append(conversation)
            self.hub.load(conversation, self.disk.get(conversation, ()))

    def perform(self, effects: HubEffects) -> list[Message]:
        for entry in effects.persist:
            self.disk.setdefault(entry.conversation, []).append(entry)
        self.hub.evict(frozenset())
        return [frame.message for _, frame in effects.send]

    def push(self, peer: PublicKey, *entries: Entry) -> dict[EntryId, Fault | None]:
        message = Entries(entries[0].conversation, entries)
        self.ensure_loaded(peer, message.conversation, message)
        effects, outcomes = self.hub.begin_push(peer).whole(message, 0.0)
        self.perform(effects)
        return outcomes

    def connect(self, peer: PublicKey, *, follow: bool = False) -> tuple[LinkId, list[Message]]:
        link_id = self.hub.connect(peer, 0.0)
        return link_id, self.perform(self.hub.receive(link_id, Hello((1,), follow=follow), 0.0))

    def open(self, link_id: LinkId, peer: PublicKey, conversation: ConversationId) -> list[Message]:
        message = Open(conversation, Digest(bytes(32)))
        self.ensure_loaded(peer, conversation, message)
        return self.perform(self.hub.receive(link_id, message, 0.0))


@pytest.fixture
def bounded() -> Bounded:
    return Bounded()


def test_only_as_many_as_the_policy_allows_stay_in_memory(bounded: Bounded):
    assert list(bounded.hub.shelf) == bounded.ids[-2:]


def test_all_are_listed(bounded: Bounded):
    _, told = bounded.connect(BOB.public, follow=True)
    listed = [item for listing in of(Listing, told) for item in listing.items]
    assert [item.conversation for item in listed] == sorted(bounded.ids)


def test_each_admits_a_push_and_keeps_it(bounded: Bounded):
    for _ in range(2):
        for writer, log in zip(bounded.writers, bounded.logs, strict=True):
            log.append(writer.write(log[0].conversation, said("more"), parents=[log[0]]))
            assert bounded.push(ADA.public, log[-1]) == {log[-1].id: None}
    assert {c: set(stored) for c, stored in bounded.disk.items()} == {
        log[0].conversation: set(log) for log in bounded.logs
    }
    assert len(bounded.hub.shelf) == 2


def test_each_is_opened_and_stays_in_memory_while_it_is(bounded: Bounded):
    link_id, _ = bounded.connect(BOB.public)
    for conversation in bounded.ids:
        (opened,) = of(Opened, bounded.open(link_id, BOB.public, conversation))
        assert opened.conversation == conversation
    assert set(bounded.hub.shelf) == set(bounded.ids)
    bounded.hub.disconnect(link_id)
    bounded.hub.evict(frozenset())
    assert len(bounded.hub.shelf) == 2


def test_each_answers_fetch_and_resolve(bounded: Bounded):
    for log in bounded.logs:
        bounded.ensure_loaded(BOB.public, log[0].conversation)
        held = bounded.hub.permitted(BOB.public, log[0].conversation)
        (fetched,) = queries.fetch(held, [entry.id for entry in log], ())
        assert list(fetched.entries) == log
        assert queries.fate_of(held, log[1].id) == queries.Held(None, None)
        bounded.hub.evict(frozenset())


def test_a_conversation_that_is_being_written_stays(bounded: Bounded):
    written = bounded.ids[0]
    for conversation in bounded.ids[:3]:
        bounded.ensure_loaded(ADA.public, conversation)
    bounded.hub.evict({written})
    assert written in bounded.hub.shelf
    bounded.ensure_loaded(ADA.public, bounded.ids[3])
    bounded.hub.evict(frozenset())
    assert written not in bounded.hub.shelf


def test_a_stranger_loads_nothing_and_gets_the_answer_for_an_unknown_conversation(bounded: Bounded):
    link_id, _ = bounded.connect(EVE.public)
    before = list(bounded.loads)
    for conversation in (bounded.ids[0], ConversationId(b"?" * 32)):
        (fault,) = of(Fault, bounded.open(link_id, EVE.public, conversation))
        assert fault == Fault.of(ConversationUnknown(), conversation)
        bounded.ensure_loaded(EVE.public, conversation)
        with pytest.raises(ConversationUnknown):
            bounded.hub.permitted(EVE.public, conversation)
        entry = EVE.write(conversation, said("x"), parents=[bounded.logs[0][0]])
        (refusal,) = bounded.push(EVE.public, entry).values()
        assert refusal == Fault.of(ConversationUnknown(), conversation)
    assert bounded.loads == before


def test_a_key_that_proves_its_grant_with_the_log_is_admitted(bounded: Bounded):
    writer, log = bounded.writers[0], bounded.logs[0]
    grant = Member(Grant(EVE.public, Role.READER))
    log.append(writer.write(log[0].conversation, grant, parents=[log[1]]))
    assert log[0].conversation not in bounded.hub.shelf
    assert set(bounded.push(EVE.public, *log).values()) == {None}
    assert set(bounded.disk[log[0].conversation]) == set(log)


def test_an_index_of_headers_lists_and_loads_like_an_evicted_conversation(bounded: Bounded):
    again = Hub(HUB_KEY, Policy(conversations_in_memory_max=2))
    for conversation, entries in bounded.disk.items():
        index(again, conversation, entries)
    assert len(again.shelf) == 0
    assert list(list_of(again.shelf, BOB.public)) == list(list_of(bounded.hub.shelf, BOB.public))
    assert again.needs_load(BOB.public, bounded.ids[0])
    assert not again.needs_load(EVE.public, bounded.ids[0])


def test_a_deleted_conversation_is_not_indexed_again(bounded: Bounded):
    bounded.hub.delete(bounded.ids[0])
    index(bounded.hub, bounded.ids[0], bounded.disk[bounded.ids[0]])
    assert not bounded.hub.needs_load(ADA.public, bounded.ids[0])
