"""The iterators of the blocking form, which any thread may close."""

import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

import antiphon
from antiphon.library.io.feed import _Listener
from antiphon.library.io.portal import Iteration, Portal
from antiphon.library.io.steps import Steps

Opened = Callable[[antiphon.Replica], "Iteration[antiphon.Event]"]


def _feeds(me: antiphon.Replica) -> int:
    return sum(isinstance(one, _Listener) for one in me._core._replica._listeners)


@pytest.mark.parametrize("of", [lambda me: me.events(), lambda me: me.conversation("t").events()])
def test_another_thread_ends_a_loop_that_waits_for_events(tmp_path: Path, of: Opened):
    with antiphon.open(tmp_path) as me:
        events, heard, texts = of(me), threading.Event(), list[str]()

        def read() -> None:
            for event in events:
                if isinstance(event, antiphon.Said):
                    texts.append(event.text)
                    heard.set()
            texts.append("the end")

        reader = threading.Thread(target=read)
        reader.start()
        me.conversation("t").say("Hello.")
        heard.wait()
        events.close()
        reader.join(20)
        assert texts == ["Hello.", "the end"]
        events.close()
        assert next(events, None) is None
        assert me.conversation("t").say("Still open.")


def test_a_with_around_events_ends_them(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        before = _feeds(me)
        with me.events() as events:
            me.conversation("t").say("Hello.")
            said = next(event for event in events if isinstance(event, antiphon.Said))
        assert said.text == "Hello."
        assert next(events, None) is None
        assert _feeds(me) == before


def test_an_iterator_that_was_not_begun_is_closed(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        before = _feeds(me)
        events = me.events()
        events.close()
        assert next(events, None) is None
        assert _feeds(me) == before


def test_an_error_ends_an_iteration():
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("of the items")

    portal = Portal()
    items = Iteration(portal, Steps(failing(), lambda: None))
    assert next(items) == 1
    with pytest.raises(ValueError, match="of the items"):
        next(items)
    assert next(items, None) is None
    portal.close()
