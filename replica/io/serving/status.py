"""The mapping of errors to gRPC status and back (spec/10-errors §2)."""

from collections.abc import Iterator
from typing import Any, NoReturn, cast

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from replica import refusals
from replica.errors import (
    AntiphonError,
    EntryRefused,
    HostError,
    RequestRefused,
    StoreError,
    Unavailable,
    with_step,
)
from replica.ids import EntryId
from replica.limits import METADATA_BYTES_MAX
from replica.link import Fault

DOMAIN = "antiphon.v1"
_NO_GREETING = "timed out before receiving SETTINGS frame"
"""Words of gRPC for a peer that accepts a connection and sends nothing."""

_OFF_CLOCK = ("certificate has expired", "certificate is not yet valid")
"""Words of OpenSSL for a certificate of another time."""

_CODES: tuple[tuple[type[AntiphonError], grpc.StatusCode], ...] = (
    (refusals.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (refusals.ProofInvalid, grpc.StatusCode.UNAUTHENTICATED),
    (refusals.ConversationUnknown, grpc.StatusCode.NOT_FOUND),
    (refusals.BlobMissing, grpc.StatusCode.NOT_FOUND),
    (refusals.NotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (refusals.CreateForbidden, grpc.StatusCode.PERMISSION_DENIED),
    (refusals.QuotaExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (refusals.RateLimited, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (refusals.PendingFull, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (refusals.BlobTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (refusals.StoreFull, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (refusals.StoreCorrupt, grpc.StatusCode.DATA_LOSS),
    (refusals.EntriesMissing, grpc.StatusCode.FAILED_PRECONDITION),
    (refusals.LanesDiverged, grpc.StatusCode.FAILED_PRECONDITION),
    (refusals.BlobOffsetInvalid, grpc.StatusCode.FAILED_PRECONDITION),
    (EntryRefused, grpc.StatusCode.INVALID_ARGUMENT),
    (RequestRefused, grpc.StatusCode.INVALID_ARGUMENT),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (StoreError, grpc.StatusCode.UNAVAILABLE),
    (HostError, grpc.StatusCode.UNAVAILABLE),
)


def code_of(error: AntiphonError) -> grpc.StatusCode:
    """Return the status code of an error's class."""
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", error: AntiphonError) -> NoReturn:
    """End a call with the error as status and ErrorInfo, and RetryInfo if it is retryable."""
    rich = rpc_status.to_status(status_of(error))
    await context.abort(rich.code, rich.details, rich.trailing_metadata)
    raise AssertionError("abort raises")


def status_of(error: AntiphonError) -> status_pb2.Status:
    """Return the content of the trailer `grpc-status-details-bin` for an error (LINK-90)."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=DOMAIN, metadata={"next_step": error.next_step}
    )
    if error.missing:
        joined = " ".join(m.hex() for m in error.missing[: METADATA_BYTES_MAX // 130])
        info.metadata["missing"] = joined
    details = [_any(info)]
    if error.retryable:
        wait_s = error.retry_after_s or 0.0
        delay = duration_pb2.Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9))
        details.append(_any(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(
        code=code_of(error).value[0], message=error.for_peer().detail[:500], details=details
    )


def _any(message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _classes(base: type[AntiphonError] = AntiphonError) -> Iterator[type[AntiphonError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _classes(kind)


class PeerError(AntiphonError):
    """The peer refused with a reason this version does not know."""

    @classmethod
    def of(cls, fault: Fault) -> "PeerError":
        """Return an error with the peer's reason, detail and next step."""
        error = cls(
            fault.detail, missing=fault.missing, retry_after_s=fault.retry_after_ms / 1000 or None
        )
        # Instance attributes hide the class's, because the texts are the peer's.
        error.__dict__.update(
            reason=fault.reason, next_step=fault.next_step, retryable=fault.retryable
        )
        return error


class NotServed(refusals.HubUnreachable):
    """What listens at the address serves no such call."""

    next_step = "Check the address: what listens there is no hub, or one of another version."


class CertificateOutdated(refusals.HubUnreachable):
    """By the clock of this machine, the hub's certificate is not valid now."""

    next_step = (
        "Compare this machine's clock with the hub's, and set the wrong one. The hub replaces its"
        " certificate within a minute of that; entries are kept and are sent on reconnect."
    )


def error_of(fault: Fault) -> AntiphonError:
    """Return the typed error of a peer's fault, with the next step that the peer names."""
    for kind in _classes():
        if kind.reason == fault.reason and kind is not PeerError:
            wait_s = fault.retry_after_ms / 1000 or None
            error = kind(fault.detail, missing=fault.missing, retry_after_s=wait_s)
            # It may fit this refusal better than that of the class.
            return with_step(error, fault.next_step) if fault.next_step else error
    return PeerError.of(fault)


def from_rpc_error(error: grpc.aio.AioRpcError) -> AntiphonError:
    """Return the typed error behind a failed call, whatever bytes its trailer has."""
    code = error.code()
    try:
        fault = _fault_of(error)
    except (ValueError, DecodeError):  # not LINK-90; the peer may be any program
        return refusals.HubUnreachable(f"{code.name.lower()}, with a malformed status")
    if not fault.reason and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return refusals.FrameTooLarge(fault.detail)  # gRPC's own limit
    if not fault.reason and code is grpc.StatusCode.UNIMPLEMENTED:
        return NotServed()
    if not fault.reason and any(words in fault.detail for words in _OFF_CLOCK):
        return CertificateOutdated()
    if not fault.reason:
        return refusals.HubUnreachable(_words_of(code, fault.detail))
    return error_of(fault)


def _words_of(code: grpc.StatusCode, detail: str) -> str:
    """Return why a call got no answer: of a peer that is silent in plain words, else gRPC's."""
    # A peer that was stopped accepts connections too, and does not even begin HTTP/2.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or _NO_GREETING in detail:
        return "no answer came in time"
    return f"{code.name.lower()}: {detail}"


def _fault_of(error: grpc.aio.AioRpcError) -> Fault:
    """Return the fault in the trailer of a failed call; its reason is "" where none is there.

    Raises ValueError, DecodeError.
    """
    reason, next_step, wait_s, retryable = "", "", 0.0, False
    missing: tuple[EntryId, ...] = ()
    status = rpc_status.from_call(cast(Any, error))  # has the attributes that from_call reads
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason, next_step = info.reason, info.metadata.get("next_step", "")
            ids = info.metadata.get("missing", "").split()
            missing = tuple(EntryId(bytes.fromhex(one)) for one in ids)
        elif detail.Unpack(retry):
            retryable = True
            wait_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return Fault(
        reason,
        error.details() or "",
        next_step,
        retryable,
        missing=missing,
        retry_after_ms=int(wait_s * 1000),
    )
