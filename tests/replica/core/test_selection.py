"""Which listed conversations are open: bounds, creators, idle ones, those asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from replica.core import selection
from replica.core.open_listed import Use
from replica.core.selection import FOLLOWED_MAX, RETRY_S, FollowPolicy, LeftOut, Selection, Turn
from replica.ids import ConversationId, PublicKey
from replica.limits import OPENING_MAX, STALE_S
from replica.link.messages import ListingItem

LISTED_MAX = FOLLOWED_MAX + 200
"""Conversations that are listed at most here; the bound of the protocol takes seconds to reach."""
ADA, EVE = (PublicKey(bytes([n]) * 32) for n in (1, 3))


@pytest.fixture(autouse=True)
def few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LISTED_MAX", LISTED_MAX)


def conversation(number: int) -> ConversationId:
    return ConversationId(number.to_bytes(32, "big"))


def items(
    numbers: Iterable[int], creator: PublicKey | None = EVE, *, awaited: bool = False
) -> list[ListingItem]:
    return [ListingItem(conversation(n), creator, awaited) for n in numbers]


@dataclass
class Scene:
    """A selection whose conversations are opened at once."""

    selection: Selection
    now: float = 0.0
    uses: dict[int, Use] = field(default_factory=dict)

    def use_of(self, one: ConversationId) -> Use:
        return self.uses.get(int.from_bytes(one), Use.NONE)

    def next(self, others: int = 0) -> Turn:
        return self.selection.next(self.now, others, self.use_of)

    def opened(self, others: int = 0) -> list[int]:
        """Return the numbers of those opened, once all are decided."""
        found: list[int] = []
        while (turn := self.next(others)).open:
            for one in turn.open:
                self.selection.note_decided(one)
                found.append(int.from_bytes(one))
        return found


def scene_of(listed: Iterable[ListingItem] = (), **policy: object) -> Scene:
    scene = Scene(Selection(FollowPolicy(**policy)))  # type: ignore[arg-type]  # fields by name
    scene.selection.add(listed)
    return scene


def test_listed_conversations_are_bounded_and_opened_a_few_at_a_time() -> None:
    scene = scene_of(items(range(FOLLOWED_MAX + 100)))
    assert len(scene.next().open) == OPENING_MAX
    assert scene.next() == Turn()
    for number in range(OPENING_MAX):
        scene.selection.note_decided(conversation(number))
    assert len(scene.opened(others=10)) == FOLLOWED_MAX - OPENING_MAX - 10
    assert scene.selection.left_out()[LeftOut.NOT_ASKED] == 110


def test_more_than_a_bound_of_listed_conversations_are_not_remembered() -> None:
    scene = scene_of(items(range(LISTED_MAX + 5)), unasked_max=0)
    scene.selection.add(items([LISTED_MAX + 9], awaited=True))
    assert scene.opened() == [LISTED_MAX + 9]
    assert sum(scene.selection.left_out().values()) == LISTED_MAX - 1, "and one is open"


def test_conversations_that_all_are_asked_for_are_bounded_too() -> None:
    scene = scene_of(items(range(LISTED_MAX + 5), awaited=True), open_max=1, unasked_max=0)
    scene.opened()
    assert sum(scene.selection.left_out().values()) == LISTED_MAX - 1, "and one is open"


@pytest.mark.parametrize(
    ("policy", "opened", "left_out"),
    [
        ({"creators": frozenset({ADA})}, [0, 1, 2], (5, 0)),
        ({"creators": None, "per_creator_max": 2}, [0, 1, 10, 11], (0, 4)),
        ({"unasked_max": 4}, [0, 1, 2, 10], (0, 4)),
        ({"open_max": 1}, [0], (0, 7)),
        ({"unasked_max": 0}, [], (0, 8)),
        ({"creators": frozenset()}, [], (8, 0)),
    ],
)
def test_a_policy_decides_what_is_open_unasked(
    policy: dict[str, object], opened: list[int], left_out: tuple[int, int]
) -> None:
    scene = scene_of([*items(range(3), ADA), *items(range(10, 15))], **policy)
    assert scene.opened() == opened
    found = scene.selection.left_out()
    assert (found[LeftOut.CREATOR], found[LeftOut.NOT_ASKED]) == left_out


def test_one_that_is_asked_for_is_opened_in_place_of_the_one_idle_for_longest() -> None:
    scene = scene_of(items(range(4)), open_max=4)
    scene.opened()
    scene.uses = {0: Use.HELD}
    scene.selection.open.touch(conversation(1), 5.0)
    scene.selection.add(items([9], ADA, awaited=True))
    assert scene.next() == Turn((conversation(9),), (conversation(2),))


def test_a_creator_displaces_none_but_its_own_beyond_its_share() -> None:
    scene = scene_of([*items([1, 2], ADA), *items(range(10, 14))], per_creator_max=2)
    assert scene.opened() == [1, 2, 10, 11]
    scene.selection.add(items([13], awaited=True))
    assert scene.next() == Turn((conversation(13),), (conversation(10),))


def test_requests_of_many_conversations_of_one_creator_keep_no_other_waiting() -> None:
    """Each creator gets its turn, however many conversations ask."""
    scene = scene_of(items(range(500), awaited=True), per_creator_max=8, unasked_max=0)
    scene.uses = dict.fromkeys(range(500), Use.HELD)
    scene.selection.add(items([900], ADA, awaited=True))
    assert scene.opened() == [0, 900, *range(1, 8)]
    assert scene.selection.left_out()[LeftOut.NO_ROOM] == 492


def test_room_is_looked_for_again_after_a_while() -> None:
    scene = scene_of(items([0]), open_max=1)
    scene.opened()
    scene.uses = {0: Use.HELD}
    scene.selection.add(items([1], awaited=True))
    assert scene.next() == Turn()
    assert scene.selection.wake_at == RETRY_S
    scene.uses = {}
    assert scene.next() == Turn()
    scene.now = RETRY_S
    assert scene.next() == Turn((conversation(1),), (conversation(0),))
    assert scene.selection.wake_at is None


def test_a_request_that_nothing_answers_keeps_its_room_for_a_while_only() -> None:
    scene = scene_of(items([0]), open_max=1)
    scene.opened()
    scene.uses = {0: Use.ASKED}
    scene.selection.add(items([1], awaited=True))
    for scene.now in (0.0, STALE_S - RETRY_S):
        assert scene.next() == Turn()
    scene.now = STALE_S
    assert scene.next() == Turn((conversation(1),), (conversation(0),))


def test_those_that_are_closed_while_they_open_make_room_for_others() -> None:
    scene = scene_of(items(range(OPENING_MAX)), idle_s=100.0)
    assert len(scene.next().open) == OPENING_MAX
    scene.now = 100.0
    assert len(scene.next().close) == OPENING_MAX
    scene.selection.add(items([OPENING_MAX]))
    assert scene.opened() == [OPENING_MAX]


def test_an_idle_conversation_is_closed_until_it_is_asked_for() -> None:
    scene = scene_of(items([0, 1, 2]), idle_s=100.0)
    scene.opened()
    scene.selection.open.touch(conversation(0), 50.0)
    scene.uses = {1: Use.ASKED}
    assert scene.selection.wake_at == 100.0
    scene.now = 100.0
    assert scene.next() == Turn((), (conversation(2),))
    assert scene.selection.wake_at == 150.0
    scene.selection.ask(conversation(2))
    assert scene.opened() == [2]


def test_the_genesis_decides_about_the_creator_and_not_the_hub() -> None:
    scene = scene_of(items([0, 1], ADA), creators=frozenset({ADA}), per_creator_max=5)
    scene.opened()
    assert scene.selection.identify(conversation(0), ADA)
    assert not scene.selection.identify(conversation(1), EVE)
    assert conversation(1) not in scene.selection.open
    assert scene.selection.left_out()[LeftOut.CREATOR] == 1
    scene.selection.ask(conversation(1))
    assert scene.opened() == []


def test_a_conversation_without_a_stated_creator_counts_as_a_stranger_s() -> None:
    assert scene_of(items([0], None), creators=frozenset({ADA})).opened() == []
    assert scene_of(items([0, 1], None), per_creator_max=1).opened() == [0]


def test_what_was_not_listed_is_not_opened() -> None:
    scene = scene_of(items([0]))
    scene.selection.ask(conversation(7))
    assert scene.opened() == [0]


def test_one_that_is_followed_in_any_case_is_not_selected_any_more() -> None:
    scene = scene_of(items(range(4)), unasked_max=1, idle_s=1.0)
    scene.selection.add(items([3], awaited=True))
    assert scene.opened() == [3]
    for number in range(4):
        scene.selection.ask(conversation(number))
        scene.selection.forget(conversation(number))
    scene.now = 9.0
    assert scene.next() == Turn()
    assert not any(scene.selection.left_out().values())


def test_a_new_link_lists_what_was_not_opened_on_the_last() -> None:
    scene = scene_of(items(range(OPENING_MAX + 2)))
    opened = scene.next().open
    scene.selection.end_link()
    scene.selection.add(items(range(OPENING_MAX + 2)))
    assert set(opened) <= set(scene.selection.open)
    assert scene.opened() == [OPENING_MAX, OPENING_MAX + 1]


def test_refused_creators_take_nobodys_place() -> None:
    scene = scene_of(items(range(LISTED_MAX + 5), EVE), creators=frozenset({ADA}))
    scene.selection.add(items([LISTED_MAX + 9], ADA))
    assert scene.opened() == [LISTED_MAX + 9]
    assert scene.selection.left_out()[LeftOut.CREATOR] == LISTED_MAX  # more are not counted


def test_one_asked_for_takes_the_place_of_a_creator_with_most() -> None:
    listed = items(range(LISTED_MAX), EVE, awaited=True)
    scene = scene_of(listed, open_max=1, per_creator_max=1, unasked_max=0)
    scene.uses[0] = Use.HELD
    scene.opened()
    scene.selection.add(items([LISTED_MAX + 9], ADA, awaited=True))
    assert scene.selection.may_open(conversation(LISTED_MAX + 9))
    assert not scene.selection.may_open(conversation(LISTED_MAX - 1))
    scene.selection.add(items([LISTED_MAX + 10], EVE, awaited=True))
    assert not scene.selection.may_open(conversation(LISTED_MAX + 10))
    scene.uses[0] = Use.NONE
    scene.now += STALE_S
    assert LISTED_MAX + 9 in scene.opened()
