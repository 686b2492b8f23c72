"""The call Stats of HostService: metrics and running requests (spec/07-host §6)."""

from antiphon.v1 import host_pb2 as pb
from model_host.batching import RunView
from model_host.io.answers import Host
from model_host.io.calls.callers import Callers
from model_host.io.calls.host_stats import HostStats
from model_host.scheduling import owner_of
from replica.conversation import Conversation
from replica.io import rpc
from replica.measures import Histogram, Measure, Value


class StatsCall:
    """Answers Stats, by what the caller may see (HOST-80, HOST-81)."""

    def __init__(self, callers: Callers, host: Host, stats: HostStats) -> None:
        """Answer from the state of `host`."""
        self._callers = callers
        self._host = host
        self._stats = stats

    async def answer(self, _request: pb.StatsRequest, context: rpc.Context) -> pb.StatsResponse:
        """Return the metrics and running requests that the caller may see."""
        peer = rpc.caller(self._callers.authenticator, context)
        operators = self._stats.operators
        measures = await self._stats.measures(for_operator=peer in operators)
        requests = []
        for view in self._host.views():
            held = self._callers.replica.shelf.get(view.conversation)
            if held is not None and operators.may_see(peer, held):
                requests.append(_request_to_pb(view, held))
        return pb.StatsResponse(
            host_key=self._callers.replica.public,
            operator=peer in operators,
            metrics=map(_metric, measures),
            requests=requests,
        )


def _request_to_pb(view: RunView, held: Conversation) -> pb.RunningRequest:
    return pb.RunningRequest(
        conversation=view.conversation,
        request=view.request,
        author=held.log.entries[view.request].header.author,
        owner=owner_of(held),
        prompt_tokens=view.prompt_tokens,
        found_tokens=view.found_tokens,
        computed_tokens=view.computed_tokens,
        output_tokens=view.output_tokens,
        age_ms=int(view.age_s * 1000),
        first_token_ms=int((view.first_token_s or 0.0) * 1000),
        failure=view.failure,
    )


def _metric(measure: Measure) -> pb.Metric:
    samples = (_sample(label, value) for label, value in measure.samples.items())
    return pb.Metric(name=measure.name, samples=samples)


def _sample(label: str, value: Value) -> pb.MetricSample:
    if isinstance(value, Histogram):
        return pb.MetricSample(
            label=label, value=value.sum, bounds=value.bounds, counts=value.counts
        )
    return pb.MetricSample(label=label, value=value)
