"""Conversations that are asked for: turns of the creators, and the creator with most."""

import random
from collections import defaultdict

from replica.core.asked import Asked
from replica.ids import ConversationId, PublicKey

ADA, BOB, EVE = (PublicKey(bytes([n]) * 32) for n in (1, 2, 3))


def one(number: int) -> ConversationId:
    return ConversationId(number.to_bytes(32, "big"))


def test_creators_have_their_turns_in_the_order_in_which_they_asked() -> None:
    asked = Asked()
    for creator, number in ((EVE, 1), (EVE, 2), (ADA, 3), (EVE, 1)):
        asked.add(creator, one(number))
    assert asked.creators(5) == (EVE, ADA)
    assert asked.creators(1) == (EVE,)
    assert list(asked.of(EVE)) == [one(1), one(2)]
    asked.move_back(EVE)
    asked.move_back(BOB)
    assert asked.creators(5) == (ADA, EVE)
    asked.discard(ADA, one(3))
    asked.discard(ADA, one(3))
    assert asked.creators(5) == (EVE,)
    assert len(asked) == 2


def test_the_latest_of_a_creator_with_most_is_taken_for_one_with_fewer() -> None:
    asked = Asked()
    for number in range(4):
        asked.add(EVE, one(number))
    asked.add(ADA, one(10))
    assert asked.take_latest(EVE) is None
    assert asked.take_latest(ADA) == one(3)
    assert asked.take_latest(BOB) == one(2)
    assert asked.take_latest(ADA) is None  # it would have as many
    assert asked.take_latest(BOB) == one(1)
    assert asked.take_latest(BOB) is None


def test_counts_agree_with_those_of_a_plain_twin() -> None:
    rng, asked = random.Random(5), Asked()
    twin: defaultdict[PublicKey, list[ConversationId]] = defaultdict(list)
    for _ in range(3_000):
        creator = rng.choice((ADA, BOB, EVE))
        number = one(1_000 * creator[0] + rng.randrange(40))
        match rng.randrange(4):
            case 0 | 1:
                asked.add(creator, number)
                if number not in twin[creator]:
                    twin[creator].append(number)
            case 2:
                asked.discard(creator, number)
                if number in twin[creator]:
                    twin[creator].remove(number)
            case _:
                most = max(map(len, twin.values()), default=0)
                found = asked.take_latest(creator)
                assert (found is None) == (most <= len(twin[creator]) + 1)
                if found is not None:
                    (heavy,) = [c for c in twin if found in twin[c][-1:] and len(twin[c]) == most][
                        :1
                    ]
                    twin[heavy].pop()
        assert len(asked) == sum(map(len, twin.values()))
        for key in twin:
            assert list(asked.of(key)) == twin[key]
    asked.clear()
    assert (len(asked), bool(asked), asked.creators(3)) == (0, False, ())
