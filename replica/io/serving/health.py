"""The standard health service of a daemon, which serves all its services or is not there.

Its Watch is left out, which the standard allows: it would be a call of anybody that never ends,
and tell no more than the connection does.
"""

from collections.abc import Container

import grpc
from grpc_health.v1 import health_pb2 as pb

from replica.io.serving import rpc

NAME = "grpc.health.v1.Health"


def handlers(services: Container[str], admit: rpc.Admit) -> rpc.Handlers:
    """Return the byte-level handlers, by method; "" stands for all services."""

    async def check(request: pb.HealthCheckRequest, context: rpc.Context) -> pb.HealthCheckResponse:
        if request.service and request.service not in services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING)

    return {"Check": rpc.unary(pb.HealthCheckRequest, check, admit=admit)}
