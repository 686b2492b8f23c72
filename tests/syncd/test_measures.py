"""The counts of a hub."""

from replica.ids import PublicKey
from replica.link.messages import Close, Fault, Ping
from replica.refusals import ConversationUnknown, QuotaExceeded
from syncd.hub import Hub
from syncd.measures import HubCounters, measures
from syncd.policy import Policy


def test_faults_are_counted_by_reason_however_they_are_sent() -> None:
    counters = HubCounters()
    counters.note_written(Ping(1), 10)
    counters.note_written(Fault.of(ConversationUnknown()), 20)
    counters.note_written(Close(None, Fault.of(QuotaExceeded())), 30)
    counters.note_written(Close(None, None), 5)
    counters.note_written(None, 7)
    counters.note_refusal(QuotaExceeded())
    assert counters.bytes_out == 72
    hub = Hub(PublicKey(bytes(32)), Policy())
    named = {m.name.removeprefix("antiphon_hub_"): m for m in measures(hub, counters)}
    assert named["faults_total"].samples == {ConversationUnknown.reason: 1, QuotaExceeded.reason: 2}
    quotas = named["quota_refusals_total"].samples
    assert quotas[QuotaExceeded.reason] == 2
    assert sum(value for value in quotas.values() if isinstance(value, int)) == 2
    assert named["sent_bytes_total"].samples == {"": 72}
