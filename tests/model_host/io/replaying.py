"""Replays as a member sees them."""

from dataclasses import dataclass, field

from model_host.io.server import HostServer
from replica.conversation import Finding, Receipt, ReplayMode
from replica.ids import EntryId
from replica.io import ReplayProgress
from replica.io.calls.host_calls import HostCalls
from tests.support.talk import Talk


@dataclass
class Replayed:
    """All that a replay yielded."""

    receipt: Receipt
    findings: dict[EntryId, Finding] = field(default_factory=dict)
    computed: int = 0
    """Tokens that were to be computed."""

    def of(self, talk: Talk, request: EntryId) -> Finding:
        """Return the finding about the answer to a request."""
        return self.findings[talk.held.order.generation_of(request)]


async def replay(
    talk: Talk,
    host: HostServer,
    mode: ReplayMode = ReplayMode.VERIFY,
    from_entry: EntryId | None = None,
) -> Replayed:
    """Let the host replay a conversation, once it holds all of it."""
    await talk.reach(host.replica)
    findings, computed = {}, 0
    async with HostCalls(host.address, talk.replica.key, host.key) as calls:
        async for event in calls.replay(talk.id, mode, from_entry):
            if isinstance(event, ReplayProgress):
                computed = event.total
            elif isinstance(event, Finding):
                assert event.answer not in findings
                findings[event.answer] = event
            else:
                receipt = event
    assert receipt.log_digest == talk.held.log.digest
    return Replayed(receipt, findings, computed)
