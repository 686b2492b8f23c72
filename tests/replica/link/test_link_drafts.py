"""Drafts on a link: from the sealing host to every reader (spec/04-link §6)."""

from dataclasses import replace

from replica.conversation.drafts import Draft, extend_digest, sign_draft, start_digest
from replica.log.body import Request, Role, Sampling
from tests.support.scenes import Scene
from tests.support.stories import answer, seal_of
from tests.support.town import Citizen, faults_of
from tests.support.writers import Writer


class Stage(Scene):
    """A scene with a host that has sealed a request."""

    def __init__(self) -> None:
        """Seal a request."""
        super().__init__()
        self.hal = self.town.citizen(Writer(6))
        self.town.run()
        heads = self.ada.held(self.id).log.membership_heads()
        before = [self.ada.held(self.id).log.entries[i] for i in heads]
        self.ada.append(self.grant(self.hal.writer, Role.HOST, *before))
        self.town.run()
        for citizen in (self.hal, self.bob):
            citizen.open(self.id)
            self.town.run()
        self.ask = self.ada.writer.write(
            self.id, Request(self.hal.writer.public, Sampling()), parents=[self.genesis]
        )
        self.ada.append(self.ask)
        self.town.run()
        held = self.hal.held(self.id)
        body = seal_of(held, self.ask.id, (self.ask.id,), None)
        listed = [held.log.entries[i] for i in body.membership_heads]
        self.seal = self.hal.writer.write(self.id, body, parents=[self.ask], listed=listed)
        self.digest = start_digest(self.ask.id, 5)

    def frame(self, offset: int, data: bytes, *token_ids: int) -> Draft:
        """Return the next draft frame."""
        self.digest = extend_digest(self.digest, token_ids)
        draft = Draft(self.id, self.ask.id, 5, offset, token_ids, offset, data, self.digest)
        return sign_draft(draft, self.hal.writer.key)

    def shown(self, citizen: Citizen) -> bytes:
        """Return what a reader has of the draft."""
        stream = citizen.held(self.id).drafts.get(self.ask.id)
        return stream.data if stream else b""


def test_drafts_pass_only_once_the_seal_is_there() -> None:
    stage = Stage()
    early = stage.frame(0, b"H", 1)
    stage.hal.send(early)
    stage.town.run()
    assert stage.shown(stage.bob) == b""
    stage.hal.append(stage.seal)
    stage.town.run()
    stage.hal.perform(stage.hal.link.send_draft(early))
    stage.town.run()
    assert stage.shown(stage.bob) == b"H"


def test_only_the_sealing_host_streams_and_only_what_it_signed() -> None:
    stage = Stage()
    stage.hal.append(stage.seal)
    stage.town.run()
    frame = stage.frame(0, b"H", 1)
    stage.ada.send(frame)
    stage.hal.send(replace(frame, data=b"J"))
    stage.town.run()
    assert faults_of(stage.ada)[-1] == "ROLE_FORBIDS"
    assert faults_of(stage.hal)[-1] == "SIGNATURE_INVALID"
    assert stage.shown(stage.bob) == b""


def test_a_late_reader_gets_the_running_draft_and_its_end() -> None:
    stage = Stage()
    stage.hal.append(stage.seal)
    stage.hal.perform(stage.hal.link.send_draft(stage.frame(0, b"H", 1)))
    stage.hal.perform(stage.hal.link.send_draft(stage.frame(1, b"i", 2)))
    stage.town.run()
    late = Citizen(stage.town, stage.bob.writer)
    late.connect()
    stage.town.run()
    late.open(stage.id)
    stage.town.run()
    assert stage.shown(late) == b"Hi"
    stage.hal.append(stage.hal.writer.write(stage.id, answer(), parents=[stage.seal]))
    stage.town.run()
    assert stage.shown(late) == b""
    assert stage.ask.id not in stage.town.hub.shelf[stage.id].drafts
