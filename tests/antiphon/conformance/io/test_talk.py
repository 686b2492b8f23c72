"""How long the kit waits for an answer: as long as the host shows that it computes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.cases import NotApplicable, Violation
from antiphon.conformance.io.host import talk as talk_module
from antiphon.conformance.io.host.talk import ANSWER_S, Talk
from antiphon.conformance.io.member import KeptLink, Overdue
from replica.conversation import Draft, Progress
from replica.ids import Digest, EntryId
from replica.log import FinishReason, Generation
from replica.log.entry import public_key

NO_CALL: Any = SimpleNamespace(add_done_callback=lambda _noted: None)
ASKED, OTHER = EntryId(b"a" * 32), EntryId(b"o" * 32)


class Scripted(KeptLink):
    """A link on which a frame comes during each wait, and nothing behind the last one."""

    def __init__(self) -> None:
        super().__init__(call=NO_CALL)
        self.frames: list[EntryId] = []
        self.waits: list[tuple[str, float]] = []

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 0) -> None:
        self.waits.append((what, limit_s))
        while self.frames:
            self.react(draft(self.talk, self.frames.pop(0)))
            if condition():
                return
        raise Overdue("nothing more comes")

    talk: Talk


def draft(talk: Talk, request: EntryId) -> Draft:
    """Return a frame of a request that has its progress alone."""
    return Draft(talk.held.id, request, 1, 0, (), 0, b"", Digest(bytes(32)),
                 progress=Progress(100, 0, 0, 10))  # fmt: skip


@pytest.fixture
def link() -> Scripted:
    key = Ed25519PrivateKey.generate()
    member: Any = SimpleNamespace(key=key, public=public_key(key))
    host: Any = None
    link = Scripted()
    link.talk = Talk(member, link, host, key, shares_pages=False)
    return link


async def test_each_draft_of_a_request_prolongs_the_wait_for_its_answer(link: Scripted) -> None:
    link.frames = [ASKED, ASKED, OTHER, ASKED, OTHER]
    with pytest.raises(Overdue, match="nothing more comes"):
        await link.talk.closed(ASKED)
    # Three drafts, and the silence behind them; those of another request prolong nothing.
    assert link.waits == [("an answer, or a further draft,", ANSWER_S)] * 4


async def test_the_wait_for_an_answer_whose_drafts_never_end_is_bounded(
    link: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk_module, "DRAFTED_S", 0.0)
    with pytest.raises(Overdue, match=r"^an answer did not come within 0 s$"):
        await link.talk.closed(ASKED)


@pytest.mark.parametrize(("turns", "error"), [(1, Violation), (3, NotApplicable)])
async def test_a_template_may_refuse_turns_behind_others_and_not_a_message_alone(
    link: Scripted, monkeypatch: pytest.MonkeyPatch, turns: int, error: type[Exception]
) -> None:
    refused = Generation((), (), 0, FinishReason.REFUSED, "TEMPLATE_UNSUPPORTED: two in a row")
    monkeypatch.setattr(Talk, "closed", AsyncMock(return_value=refused))
    monkeypatch.setattr(link.talk, "_push", AsyncMock())
    for _ in range(turns):
        await link.talk.say()
    with pytest.raises(error, match=r"template refuses|refuses a right request"):
        await link.talk.answer(ASKED)


async def test_what_did_not_come_is_said_in_words() -> None:
    with pytest.raises(Overdue, match=r"^an answer did not come within 0 s$"):
        await KeptLink(call=NO_CALL).until(lambda: False, "an answer", 0.001)
