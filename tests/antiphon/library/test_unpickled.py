"""What belongs to a process is not pickled, and says what to do instead."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio

ADVICE = {
    "Replica": "open its folder in the other process",
    "Conversation": r"get it there by its id: me.get\(conversation.id\)",
    "Branch": r"get it there by its id: me.get\(conversation.id\)",
    "Run": "run it there again under its `key`",
}


def check(one: Any) -> None:
    name = type(one).__name__
    for given in (one, [one]):
        with pytest.raises(TypeError, match=f"a {name} can't be pickled; .*{ADVICE[name]}"):
            pickle.dumps(given)
    with pytest.raises(TypeError, match="can't be pickled"):
        copy.deepcopy(one)
    assert vars(copy.copy(one)) == vars(one)


def test_the_blocking_form_is_not_pickled(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        trip = me.conversation("trip")
        for one in (me, trip, trip.at(trip.id), trip.run("Who?")):  # type: ignore[arg-type]
            check(one)
        assert copy.copy(trip) == trip
        assert copy.copy(trip).title() == "trip"


async def test_the_async_form_is_not_pickled(tmp_path: Path):
    async with aio.open(tmp_path) as me:
        trip = await me.conversation("trip")
        for one in (me, trip, trip.at(trip.id), trip.run("Who?")):  # type: ignore[arg-type]
            check(one)
        assert await copy.copy(trip).title() == "trip"
