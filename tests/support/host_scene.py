"""A conversation with a reader and a model host in it, for tests of drafts."""

from replica.conversation.drafts import Draft, extend_digest, sign_draft, start_digest
from replica.ids import EntryId
from replica.link.events import DraftReceived
from replica.log.body import Request, Role, Sampling
from replica.log.entry import Entry
from replica.testing import Peer, of
from tests.support.scene import Scene
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer

RUN = 7


class HostScene(Scene):
    """An owner, a reader and a host, all linked and in one conversation."""

    def __init__(self) -> None:
        """Begin the conversation, and let the others join it."""
        super().__init__()
        self.begin()
        self.reader, self.host = Writer(2), Writer(3)
        self.reading = self.join(self.reader, Role.READER)
        self.hosting = self.join(self.host, Role.HOST)

    def request(self) -> Entry:
        """Let the owner say something and ask the host."""
        body = Request(self.host.public, Sampling())
        entry = self.writer.write(self.id, body, parents=[self.say()])
        self.client.append(entry)
        return entry

    def seal(self, request: Entry) -> Entry:
        """Write the host's seal of a request and the message before it; it has yet to append it."""
        held = self.hosting.held(self.id)
        entries = (*request.header.parents, request.id)
        body = seal_of(held, request.id, entries, None)
        listed = [held.log.entries[i] for i in (*entries, *body.membership_heads)]
        return self.host.write(self.id, body, parents=[request], listed=listed)

    def ask(self) -> EntryId:
        """Ask, and let the host seal; return the request."""
        request = self.request()
        self.sealed = self.seal(request)
        self.hosting.append(self.sealed)
        return request.id

    def answer(self) -> Entry:
        """Let the host end the answer to the last request."""
        entry = self.host.write(self.id, answer(), parents=[self.sealed], basis=self.sealed)
        self.hosting.append(entry)
        return entry

    def frames(
        self, request: EntryId, pieces: list[tuple[int, ...]], run: int = RUN
    ) -> list[Draft]:
        """Return the signed draft of these tokens, one frame each piece, one byte each token."""
        digest, at, found = start_digest(request, run), 0, []
        for piece in pieces:
            digest = extend_digest(digest, piece)
            frame = Draft(self.id, request, run, at, piece, at, b"x" * len(piece), digest)
            found.append(sign_draft(frame, self.host.key))
            at += len(piece)
        return found

    def stream(self, *drafts: Draft) -> None:
        """Let the host stream frames."""
        for draft in drafts:
            self.hosting.perform(self.hosting.link.send_draft(draft))


def read(peer: Peer) -> list[Draft]:
    """Return the frames a reader received, in order."""
    return [event.draft for event in of(DraftReceived, peer.events)]
