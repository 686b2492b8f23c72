"""The frames of runs on their way to a hub that gives little credit."""

from types import SimpleNamespace
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.generation import DraftFrames
from model_host.io.answers.run_table import Running, RunTable
from model_host.sampling import Choice
from replica.conversation import Draft, DraftStream
from replica.ids import ConversationId, EntryId
from replica.io import Replica
from replica.log import Usage

HERE, REQUEST, SEAL = ConversationId(bytes([1]) * 32), EntryId(bytes([2]) * 32), EntryId(bytes(32))


class Link:
    """A link with credit for so many frames; what it is sent is the draft that a hub keeps."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.is_acked = True
        self.stream = DraftStream(HERE, REQUEST, 1)
        self.progress = 0
        self.hub = SimpleNamespace(is_acked=lambda _conversation, _seal: self.is_acked)

    def send_draft(self, draft: Draft) -> bool:
        if not self.credit:
            return False
        self.credit -= 1
        self.progress += draft.progress is not None
        if draft.progress is None:
            assert self.stream.receive(draft), "a gap"
        return True


class Shown:
    """One run, whose tokens come when a test says so."""

    def __init__(self, link: Link) -> None:
        self.table = RunTable(cast(Replica, link), Ed25519PrivateKey.generate())
        self.frames = DraftFrames(HERE, REQUEST, 1, self.table.sign)
        run = SimpleNamespace(
            conversation=HERE, request=REQUEST, seal=SEAL, shown=self.frames.frames
        )
        self.run = cast(Running, run)

    def token(self, token_id: int) -> None:
        self.frames.add(Choice(token_id), b"a")
        self.table.show(self.frames.take())


def test_frames_without_credit_are_sent_before_those_behind_them() -> None:
    link = Link(credit=2)
    shown = Shown(link)
    with shown.table.holding(shown.run):
        for number in range(5):
            shown.token(number)
        assert link.stream.token_ids == (0, 1)
        link.credit = 3
        shown.token(5)
        assert link.stream.token_ids == (0, 1, 2, 3, 4)
        link.credit = 9
        shown.token(6)
        assert link.stream.token_ids == tuple(range(7))


def test_all_frames_are_sent_again_on_a_new_link_as_far_as_there_is_credit() -> None:
    link = Link(credit=9)
    shown = Shown(link)
    with shown.table.holding(shown.run):
        for number in range(5):
            shown.token(number)
        link.stream, link.credit = DraftStream(HERE, REQUEST, 1), 3
        shown.table.handle_synchronized(HERE)
        assert link.stream.token_ids == (0, 1, 2)
        link.credit = 9
        shown.token(5)
        assert link.stream.token_ids == tuple(range(6))


def test_frames_of_a_seal_that_is_not_acked_wait_for_its_ack() -> None:
    link = Link(credit=9)
    shown = Shown(link)
    link.is_acked = False
    with shown.table.holding(shown.run):
        shown.table.handle_acked(HERE, [SEAL])
        shown.token(0)
        assert not link.stream.token_ids
        link.is_acked = True
        shown.table.handle_acked(HERE, [SEAL])
        assert link.stream.token_ids == (0,)


def test_progress_is_sent_by_itself() -> None:
    link = Link(credit=9)
    shown = Shown(link)
    with shown.table.holding(shown.run):
        shown.table.show(shown.frames.progress(10, Usage(), 3))
    assert link.progress == 1
