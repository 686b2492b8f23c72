"""The async form stands under names of its own."""

import inspect

from antiphon import aio


def test_its_verbs_are_coroutines():
    assert inspect.iscoroutinefunction(aio.Conversation.ask)
    assert inspect.iscoroutinefunction(aio.Replica.conversation)
    assert {"open", "local"} <= {*aio.__all__}
