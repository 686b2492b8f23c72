"""A member who was offline writes beside a request: all see the message, and the model too."""

import pytest

from antiphon.cli.views.graph import draw
from antiphon.cli.views.names import NOBODY
from antiphon.cli.views.rows import entries_at
from replica.conversation.next_seal import sealable
from replica.conversation.place import newest_place
from replica.log.body import (
    FinishReason,
    Generation,
    Message,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
)
from replica.log.entry import Entry
from replica.testing import Peer
from tests.support.scene import Scene
from tests.support.stories import seal_of
from tests.support.writers import Writer, said


class TwoMembers(Scene):
    """Ada with a host, and Bob, who is offline from the first answer on."""

    def __init__(self, part: Text | ToolCall) -> None:
        """Write the first turn, of which the answer is `part`."""
        super().__init__()
        self.begin()
        self.bob, self.hal = Writer(2), Writer(3)
        self.at_bob = self.join(self.bob)
        self.at_hal = self.join(self.hal, Role.HOST)
        self.answer = self.turn(self.say(), part=part)
        self.network.disconnect(self.at_bob)

    def turn(self, *parents: Entry, part: Text | ToolCall) -> Entry:
        """Let Ada ask, and the host answer."""
        body = Request(self.hal.public, Sampling())
        place = newest_place(self.client.held(self.id))
        entries = self.client.held(self.id).log.entries
        basis = entries[place.basis] if place.basis is not None else None
        request = self.writer.write(self.id, body, parents=parents, basis=basis)
        self.client.append(request)
        held = self.at_hal.held(self.id)
        found = sealable(held, request.id)
        assert found is not None
        prev = found.parent.id if found.parent is not None else None
        named = [*found.entries, *found.membership_heads, *([prev] if prev else [])]
        seal = self.hal.write(
            self.id,
            seal_of(held, request.id, found.entries, prev),
            parents=[request],
            listed=[held.log.entries[i] for i in named],
        )
        reply = Generation((1,), (part,), 1, FinishReason.STOP)
        answer = self.hal.write(self.id, reply, parents=[seal], basis=seal)
        self.at_hal.append(seal, answer)
        return answer

    def bob_returns(self, *entries: Entry) -> Peer:
        """Link Bob again with entries that he wrote offline."""
        back = self.network.connect(self.bob.public, shelf=self.at_bob.shelf)
        for entry in entries:
            self.at_bob.shelf[self.id].admit(entry)
        back.open(self.id)
        return back


CALL = ToolCall("call-1", "clock", "{}")


@pytest.mark.parametrize("part", [Text("Yes."), CALL], ids=["said", "called"])
def test_what_was_written_offline_beside_a_request_is_in_the_next_context(
    part: Text | ToolCall,
) -> None:
    members = TwoMembers(part)
    late = members.bob.write(members.id, said("wait"), parents=[members.answer])
    result = Message(Speaker.TOOL, (ToolResult(CALL.call_id, (Text("noon"),)),))
    more = result if part is CALL else said("and then?")
    beside = members.writer.write(members.id, more, parents=[members.answer])
    members.client.append(beside)
    last = members.turn(beside, part=Text("So be it."))
    back = members.bob_returns(late)
    for peer in (members.client, back):
        held = peer.held(members.id)
        place = newest_place(held)
        assert place.parents == tuple(sorted((last.id, late.id)))
        assert [e.id for e in entries_at(held, place)].count(late.id) == 1
        shown = [line.row.text for line in draw(held, NOBODY) if line.row is not None]
        assert sum("wait" in text for text in shown) == 1
    members.turn(last, late, part=Text("Bob, too."))
    for peer in (members.client, back):
        held = peer.held(members.id)
        context = held.order.context(held.order.tips()[-1].id)
        assert [e.id for e in context[-3:-1]] == [last.id, late.id]
        assert context.count(late) == 1
