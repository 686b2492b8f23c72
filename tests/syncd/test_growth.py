"""The work that a frame causes depends on what it brings, not on the length of the log."""

from collections.abc import Callable

import pytest

from replica import limits
from replica.ids import Digest
from replica.link.messages import Entries, Hello, Ids, Listing, ListingItem, Message, Open
from replica.log.body import Join, Role
from replica.testing import of
from syncd.hub import Hub
from syncd.links.connected import LinkId
from syncd.links.fan_out import list_more
from syncd.policy import Policy
from tests.support.call_count import calls
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer, said

OTHER = Digest(b"?" * 32)
SHORT, LONG = 400, 1_600


def _scene(count: int) -> Scene:
    scene = Scene().begin()
    scene.give(*scene.chain(count))
    assert scene.held.log.digest  # the heads move with the entries since they were last read
    return scene


def _link(scene: Scene, *, watches: bool = False) -> LinkId:
    link_id = scene.hub.connect(scene.writer.public, 0.0, watches=watches)
    scene.hub.receive(link_id, Hello((1,)), 0.0)
    return link_id


def _calls(scene: Scene, *before: Message, last: Message) -> int:
    link_id = _link(scene)
    for message in before:
        scene.hub.receive(link_id, message, 0.0)
    return calls(lambda: scene.hub.receive(link_id, last, 0.0))


def _opened_without_heads(count: int) -> int:
    scene = _scene(count)
    return _calls(scene, last=Open(scene.id, OTHER, ()))


def _opened_with_a_digest(count: int) -> int:
    scene = _scene(count)
    return _calls(scene, last=Open(scene.id, OTHER))


def _empty_ids(count: int) -> int:
    scene = _scene(count)
    return _calls(scene, Open(scene.id, OTHER), last=Ids(scene.id, ()))


def _watched_append(count: int) -> int:
    scene = _scene(count)
    watcher = _link(scene, watches=True)
    scene.hub.receive(watcher, Open(scene.id, scene.held.log.digest), 0.0)
    scene.give(*scene.chain(1))
    [entry] = scene.chain(1)
    return calls(
        lambda: scene.hub.begin_push(scene.writer.public).whole(Entries(scene.id, (entry,)), 0.0)
    )


@pytest.mark.parametrize(
    "work", [_opened_without_heads, _opened_with_a_digest, _empty_ids, _watched_append]
)
def test_a_frame_costs_the_same_on_a_long_log(
    work: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CREDIT_BYTES", 8_192)  # the entries sent at once
    monkeypatch.setattr("replica.link.channel.ENTRIES_FRAME_BYTES", 4_096)
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 64)
    assert work(LONG) <= 1.5 * work(SHORT)


def test_watches_of_one_key_share_one_hint() -> None:
    def work(watches: int) -> int:
        scene = _scene(SHORT)
        for _ in range(watches):
            watcher = _link(scene, watches=True)
            scene.hub.receive(watcher, Open(scene.id, scene.held.log.digest), 0.0)
        effects, _ = scene.hub.begin_push(scene.writer.public).whole(
            Entries(scene.id, tuple(scene.chain(1))), 0.0
        )
        assert len(effects.hints) == watches
        return len({id(hint) for _, hint in effects.hints})

    assert work(5) == 1


def test_a_pending_entry_costs_the_same_beside_many_links() -> None:
    def work(links: int) -> int:
        scene = Scene().begin()
        for _ in range(links):
            _link(scene)
        _, early = scene.chain(2)
        return _calls(scene, last=Entries(scene.id, (early,)))

    work(2)  # the signature of the entry is verified once, and then known
    assert work(200) <= work(2) + 5


# --- many lanes -----------------------------------------------------------------------


def test_logs_with_more_lanes_than_fit_a_frame_are_compared_by_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HEADS_PER_FRAME_MAX", 4)
    scene, ada = Scene().begin(), Writer(2)
    peer = scene.join(ada)
    for epoch in range(8):
        lane = Writer(1, epoch=epoch + 50)
        scene.give(lane.write(scene.id, said(str(epoch)), parents=[scene.genesis]))
    scene.network.disconnect(peer)
    mine = ada.write(scene.id, said("offline"), parents=[scene.genesis])
    back = scene.network.connect(ada.public, shelf=peer.shelf)
    peer.shelf[scene.id].admit(mine)
    theirs = Writer(1, epoch=99).write(scene.id, said("meanwhile"), parents=[scene.genesis])
    scene.give(theirs)
    back.open(scene.id)
    assert of(Ids, back.sent)
    assert scene.at_hub(mine)
    assert theirs.id in back.held(scene.id).log.entries
    scene.network.advance(limits.RESYNC_S)
    assert back.held(scene.id).log.digest == scene.held.log.digest
    assert scene.state(back).value == "synchronized"


def test_a_new_device_opens_a_log_with_many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADS_PER_FRAME_MAX", 4)
    scene, ada = Scene().begin(), Writer(2)
    scene.client.append(scene.grant(ada.public, Role.READER))
    for epoch in range(8):
        scene.give(Writer(1, epoch=epoch + 50).write(scene.id, Join(), parents=[scene.genesis]))
    peer = scene.network.connect(ada.public)
    peer.open(scene.id)
    assert peer.held(scene.id).log.digest == scene.held.log.digest
    scene.network.advance(limits.RESYNC_S)
    assert scene.state(peer).value == "synchronized"


# --- listings ---------------------------------------------------------------------------


def test_a_listing_has_many_conversations_in_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, writer = Hub(HUB_KEY, Policy()), Writer(1)
    ids = []
    for _ in range(5):
        genesis = writer.genesis()
        hub.load(genesis.conversation, [genesis])
        ids.append(genesis.conversation)
    monkeypatch.setattr(limits, "LISTING_ITEMS_MAX", 2)
    ids.sort()
    link_id = hub.connect(writer.public, 0.0)
    sent = [*hub.receive(link_id, Hello((1,), follow=True), 0.0).send]
    while hub.connected.is_list_due(link_id):
        sent += list_more(hub.connected, hub.shelf, link_id).send
    listings = of(Listing, (frame for _, frame in sent))
    assert [len(listing.items) for listing in listings] == [2, 2, 1]
    listed = [item for listing in listings for item in listing.items]
    assert listed == [ListingItem(i, writer.public) for i in ids]


def test_an_append_does_not_go_on_with_the_backlogs_of_its_readers() -> None:
    def work(count: int) -> int:
        scene = _scene(count)
        for _ in range(4):
            link_id = _link(scene)
            scene.hub.receive(link_id, Open(scene.id, OTHER, ()), 0.0)
        [entry] = scene.chain(1)
        message = Entries(scene.id, (entry,))
        appended = calls(lambda: scene.hub.begin_push(scene.writer.public).whole(message, 0.0))
        return appended + calls(lambda: scene.hub.handle_deadlines(1.0))

    assert work(LONG) <= 1.5 * work(50)
