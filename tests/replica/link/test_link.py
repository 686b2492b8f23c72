"""One link at a time: greeting, credit, time, end (spec/04-link)."""

import pytest

from replica import limits
from replica.conversation.drafts import Draft
from replica.conversation.shelf import MemoryShelf
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.link.events import EntriesAdmitted, LinkClosed, StateChanged, SyncState, Welcomed
from replica.link.exchange import Side
from replica.link.link import Link, Phase
from replica.link.messages import (
    Ack,
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    HostInfo,
    Ids,
    LinkedHost,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.testing import Network, Pair, of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.writers import Writer, said

UNKNOWN = ConversationId(b"c" * 32)
HUB_KEY = PublicKey(b"h" * 32)


@pytest.fixture
def hub() -> Hub:
    return Hub(HUB_KEY, Policy())


@pytest.fixture
def writer() -> Writer:
    return Writer(1)


@pytest.fixture
def pair(hub: Hub, writer: Writer) -> Pair:
    return Pair(hub, writer.public)


def begin(pair: Pair, writer: Writer) -> ConversationId:
    """Create a conversation and bring it to the hub."""
    genesis = writer.genesis()
    pair.client.append(genesis)
    pair.client.open(ConversationId(genesis.id))
    return ConversationId(genesis.id)


# --- greeting ----------------------------------------------------------------------


def test_a_hello_is_answered_by_a_welcome_with_the_hubs_key(pair: Pair):
    (welcome,) = of(Welcome, pair.client.received)
    assert welcome.hub_key == HUB_KEY
    assert pair.client.link.peer == HUB_KEY
    assert of(Welcomed, pair.client.events)


def test_no_version_in_common_ends_the_link_with_a_typed_fault(hub: Hub, writer: Writer):
    network = Network(hub)
    peer = network.connect(writer.public, hello=Hello((99,)))
    (close,) = of(Close, peer.received)
    assert close.fault.reason == "VERSION_UNSUPPORTED"
    assert peer.link.phase is Phase.CLOSED
    assert not hub.links


def test_a_doubled_hello_changes_nothing(pair: Pair):
    pair.client.send(Hello((1,), follow=True))
    assert len(of(Welcome, pair.client.received)) == 1


def test_the_welcome_names_the_hosts_linked_now(hub: Hub, writer: Writer):
    network = Network(hub)
    info = HostInfo(Writer(9).public, "localhost:1", ())
    network.connect(info.key, hello=Hello((1,), host=info))
    reader = network.connect(writer.public)
    (welcome,) = of(Welcome, reader.received)
    assert welcome.hosts == (LinkedHost(info, vouched=False),)


def test_a_message_before_the_greeting_ends_the_link(hub: Hub, writer: Writer):
    link_id = hub.connect(writer.public, 0.0)
    effects = hub.receive(link_id, Open(ConversationId(b"c" * 32), Digest(b"d" * 32)), 0.0)
    ((_, frame),) = effects.send
    assert frame.message.fault.reason == "LINK_OUT_OF_ORDER"
    assert effects.closed == (link_id,)


def test_a_message_of_the_other_direction_ends_the_link(pair: Pair):
    effects = pair.hub.receive(pair.client.link_id, Pong(1), 0.0)
    ((_, frame),) = effects.send
    assert frame.message.fault.reason == "LINK_OUT_OF_ORDER"


def test_a_closed_link_does_nothing_more(pair: Pair, writer: Writer):
    pair.hub.disconnect(pair.client.link_id)
    pair.client.perform(pair.client.link.handle_disconnect())
    before = len(pair.client.sent)
    pair.advance(100.0)
    assert len(pair.client.sent) == before
    assert pair.client.link.receive(Pong(1), 100.0).send == ()


def test_leaving_a_conversation_makes_it_offline(pair: Pair, writer: Writer):
    conversation = begin(pair, writer)
    pair.client.perform(pair.client.link.leave(conversation))
    assert pair.client.events[-1] == StateChanged(conversation, SyncState.OFFLINE)


def test_a_hub_that_greets_with_another_key_than_it_proved_is_refused(writer: Writer):
    link = Link(
        Side.CLIENT, key=writer.public, peer=PublicKey(b"p" * 32), shelf=MemoryShelf(), now=0.0
    )
    link.receive(Welcome(1, PublicKey(b"q" * 32), 1, 1, 1), 0.0)
    assert link.phase is Phase.CLOSED


# --- time ----------------------------------------------------------------------------


def test_an_idle_client_sends_heartbeats_and_is_answered(pair: Pair):
    pair.advance(limits.HEARTBEAT_S)
    assert len(of(Ping, pair.client.sent)) == 1
    assert len(of(Pong, pair.client.received)) == 1
    assert pair.client.link.phase is Phase.READY


def test_a_link_without_messages_for_the_idle_timeout_ends(pair: Pair):
    pair.loses = lambda _: True
    pair.now += limits.IDLE_TIMEOUT_S
    pair.client.perform(pair.client.link.handle_deadline(pair.now))
    (closed,) = of(LinkClosed, pair.client.events)
    assert closed.fault.reason == "LINK_IDLE"
    assert closed.fault.retryable
    assert pair.hub.handle_deadlines(pair.now).closed == (pair.client.link_id,)


def test_wake_at_is_never_in_the_past_before_the_greeting(hub: Hub, writer: Writer):
    network = Network(hub)
    network.loses = lambda _: True
    peer = network.connect(writer.public)
    late = limits.HEARTBEAT_S + 1
    assert peer.link.handle_deadline(late).wake_at > late


def test_a_hub_wakes_for_an_idle_link_and_never_for_a_heartbeat(pair: Pair):
    hub_end = pair.hub.links[pair.client.link_id]
    assert hub_end.wake_at == limits.IDLE_TIMEOUT_S
    assert pair.client.link.wake_at == limits.HEARTBEAT_S


def test_the_end_of_a_link_is_delivered_once(pair: Pair):
    pair.client.perform(pair.client.link.handle_disconnect())
    assert pair.client.link.handle_disconnect().deliver == ()
    assert len(of(LinkClosed, pair.client.events)) == 1
    assert pair.client.link.wake_at is None


def test_a_lost_stream_takes_every_conversation_offline(pair: Pair, writer: Writer):
    conversation = begin(pair, writer)
    pair.disconnect(pair.client)
    assert StateChanged(conversation, SyncState.OFFLINE) in pair.client.events
    assert pair.client.link.phase is Phase.CLOSED


# --- credit -----------------------------------------------------------------------------


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(limits, "CREDIT_BYTES", 4_000)
    monkeypatch.setattr("replica.link.channel.ENTRIES_FRAME_BYTES", 1_000)
    return 4_000


def write_many(pair: Pair, writer: Writer, conversation: ConversationId, count: int) -> None:
    last = writer.last(conversation) or pair.client.shelf[conversation].log.genesis
    for number in range(count):
        last = writer.write(conversation, said(f"{number} {'x' * 200}"), parents=[last])
        pair.client.append(last)


def test_without_credit_entries_wait_for_it(small_window: int, hub: Hub, writer: Writer):
    pair = Pair(hub, writer.public)
    conversation = begin(pair, writer)
    pair.loses = lambda message: isinstance(message, Credit)
    write_many(pair, writer, conversation, 40)
    channel = pair.client.link.channels[conversation]
    assert channel.outgoing
    assert len(hub.shelf[conversation].log) < 41
    pair.loses = lambda _: False
    pair.advance(limits.HEARTBEAT_S)
    assert not channel.outgoing
    assert not channel.unacked
    assert len(hub.shelf[conversation].log) == 41


def test_entries_that_wait_for_credit_cause_a_heartbeat_and_no_comparison(
    small_window: int, hub: Hub, writer: Writer
):
    pair = Pair(hub, writer.public)
    conversation = begin(pair, writer)
    pair.loses = lambda message: isinstance(message, (Credit, Pong))
    write_many(pair, writer, conversation, 40)
    opens, pings = len(of(Open, pair.client.sent)), len(of(Ping, pair.client.sent))
    pair.advance(limits.RESYNC_S)
    assert len(of(Open, pair.client.sent)) == opens
    assert len(of(Ping, pair.client.sent)) == pings + 1


def test_bytes_lost_on_the_way_to_a_reader_are_released(
    small_window: int, hub: Hub, writer: Writer
):
    network = Network(hub)
    author = network.connect(writer.public)
    genesis = writer.genesis()
    author.append(genesis)
    author.open(ConversationId(genesis.id))
    reader = network.connect(writer.public)
    reader.open(ConversationId(genesis.id))
    hub_link = hub.links[reader.link_id]
    network.loses = lambda message: isinstance(message, Entries) and message.entries != (genesis,)
    last = genesis
    while hub_link.flow.may_send():
        last = writer.write(genesis.conversation, said("x" * 200), parents=[last])
        effects, _ = hub.begin_push(writer.public).whole(
            Entries(genesis.conversation, (last,)), network.now
        )
        network.perform(effects)
    network.loses = lambda _: False
    sent_bytes = hub_link.flow.sent_bytes
    network.advance(limits.HEARTBEAT_S)
    assert hub_link.flow.sent_limit >= sent_bytes + limits.CREDIT_BYTES
    network.advance(limits.RESYNC_S)
    assert (
        reader.shelf[genesis.conversation].log.digest == hub.shelf[genesis.conversation].log.digest
    )


def test_bytes_lost_on_the_way_to_the_hub_are_released(small_window: int, hub: Hub, writer: Writer):
    pair = Pair(hub, writer.public)
    conversation = begin(pair, writer)
    link = pair.client.link
    pair.loses = lambda message: isinstance(message, Entries)
    for _ in range(5):  # far more is lost than one window
        write_many(pair, writer, conversation, 20)
        assert not link.flow.may_send()
        sent_bytes = link.flow.sent_bytes
        pair.advance(limits.HEARTBEAT_S)
        # The heartbeat names them, and its answer grants a whole window beyond.
        assert link.flow.sent_limit >= sent_bytes + limits.CREDIT_BYTES
    pair.loses = lambda _: False
    for _ in range(3):
        pair.advance(limits.HEARTBEAT_S)
    assert len(hub.shelf[conversation].log) == 101
    assert link.phase is Phase.READY


def test_a_peer_that_sends_far_beyond_its_credit_is_disconnected(pair: Pair):
    link = pair.client.link
    draft = Draft(
        ConversationId(b"c" * 32), EntryId(b"r" * 32), 1, 0, (1,), 0, b"", Digest(b"d" * 32)
    )
    effects = link.receive(draft, 0.0, frame_bytes=2 * limits.CREDIT_BYTES + 1)
    (closed,) = of(LinkClosed, list(effects.deliver))
    assert closed.fault.reason == "CREDIT_EXCEEDED"


def test_lists_of_ids_wait_for_credit_too(
    small_window: int, hub: Hub, writer: Writer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 10)
    pair = Pair(hub, writer.public)
    conversation = begin(pair, writer)
    write_many(pair, writer, conversation, 300)
    at_hub = hub.links[pair.client.link_id]
    before = len(of(Ids, pair.client.received))
    pair.loses = lambda message: isinstance(message, Credit)
    for _ in range(3):  # asked repeatedly, it has one list to send
        pair.client.send(Ids(conversation, (), False, False))
    assert at_hub.flow.sent_bytes - at_hub.flow.sent_limit < 1_000
    pair.loses = lambda _: False
    for _ in range(5):
        pair.advance(limits.HEARTBEAT_S)
    lists = of(Ids, pair.client.received)[before:]
    assert len(lists) < 3 * 31  # each new list took the place of the rest of the old one
    assert not lists[-1].more


def test_control_messages_need_no_credit(small_window: int, hub: Hub, writer: Writer):
    pair = Pair(hub, writer.public)
    conversation = begin(pair, writer)
    pair.loses = lambda message: isinstance(message, Credit)
    write_many(pair, writer, conversation, 40)
    pair.client.send(Ping(7))
    pong = of(Pong, pair.client.received)[-1]
    at_hub = hub.links[pair.client.link_id]
    assert (pong.nonce, pong.sent_bytes) == (7, at_hub.flow.sent_bytes)
    assert pair.client.link.flow.sent_limit == pong.limit_bytes > limits.CREDIT_BYTES


# --- effects for the driver ---------------------------------------------------------------


def test_an_append_is_persisted_in_the_same_effects_that_send_it(pair: Pair, writer: Writer):
    conversation = begin(pair, writer)
    genesis = pair.client.shelf[conversation].log.genesis
    entry = writer.write(conversation, said("hi"), parents=[genesis])
    effects = pair.client.link.append(entry, 0.0)
    assert effects.persist == (entry,)
    assert [f.message for f in effects.send] == [Entries(conversation, (entry,))]
    assert EntriesAdmitted(conversation, (entry,)) in effects.deliver


def test_appending_the_same_entry_again_does_nothing(pair: Pair, writer: Writer):
    conversation = begin(pair, writer)
    genesis = pair.client.shelf[conversation].log.genesis
    effects = pair.client.link.append(genesis, 0.0)
    assert (effects.persist, effects.send, effects.deliver) == ((), (), ())


@pytest.mark.parametrize(
    "message",
    [
        Fault("WHATEVER"),
        Fault("WHATEVER", conversation=UNKNOWN),
        Close(UNKNOWN),
        Opened(UNKNOWN, Digest(b"d" * 32), equal=True),
        Ack(UNKNOWN, ()),
        Ids(UNKNOWN, ()),
        Entries(UNKNOWN, ()),
        Draft(UNKNOWN, EntryId(b"r" * 32), 1, 0, (1,), 0, b"", Digest(b"d" * 32)),
    ],
)
def test_messages_about_a_conversation_that_is_not_open_change_nothing(pair: Pair, message):
    effects = pair.client.link.receive(message, 0.0)
    assert (effects.persist, effects.send, effects.deliver) == ((), (), ())
