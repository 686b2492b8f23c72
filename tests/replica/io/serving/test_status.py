"""The typed error of a failed call, whatever its trailer has (LINK-90, ERR-2)."""

import pickle

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from replica.errors import AntiphonError, with_step
from replica.ids import EntryId
from replica.io.serving.status import DOMAIN, PeerError, error_of, from_rpc_error, status_of
from replica.link import Fault
from replica.refusals import EntriesMissing, HubUnreachable, QuotaExceeded

CODE = grpc.StatusCode.FAILED_PRECONDITION
HONEST = EntriesMissing("one", missing=[EntryId(b"e" * 32)], retry_after_s=1.5)


def read(trailer: bytes, code: grpc.StatusCode = CODE, details: str = "one") -> AntiphonError:
    """Return the error of a call that ended with these details."""
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", trailer))
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details)
    return from_rpc_error(error)


def status(**changed: str) -> status_pb2.Status:
    """Return a status whose ErrorInfo has other metadata than an honest one."""
    info = error_details_pb2.ErrorInfo(domain=DOMAIN, reason=HONEST.reason, metadata=changed)
    packed = any_pb2.Any()
    packed.Pack(info)
    return status_pb2.Status(code=CODE.value[0], message="one", details=[packed])


def damaged() -> status_pb2.Status:
    """Return a status whose ErrorInfo is no message."""
    built = status()
    built.details[0].value = b"\xff"
    return built


def test_a_refusal_arrives_as_it_was_sent() -> None:
    error = read(status_of(HONEST).SerializeToString())
    assert isinstance(error, EntriesMissing)
    assert (error.detail, error.missing, error.retry_after_s) == ("one", HONEST.missing, 1.5)


def test_a_refusal_arrives_with_the_next_step_that_fits_it() -> None:
    sent = with_step(QuotaExceeded("the conversation is full"), "Go on in another conversation.")
    trailer = status_of(sent).SerializeToString()
    called = read(trailer, grpc.StatusCode.RESOURCE_EXHAUSTED, sent.detail)
    for error in (called, error_of(Fault.of(sent))):
        assert type(error) is QuotaExceeded
        assert error.next_step == "Go on in another conversation."


def test_a_refusal_without_a_next_step_has_that_of_its_reason() -> None:
    assert error_of(Fault("QUOTA_EXCEEDED", "full")).next_step == QuotaExceeded.next_step


@pytest.mark.parametrize(
    "trailer",
    [
        b"\xff",
        damaged().SerializeToString(),
        status(missing="zz").SerializeToString(),
        status_of(HubUnreachable("one")).SerializeToString(),
        status_of(EntriesMissing("two")).SerializeToString(),
    ],
    ids=["no Status", "no ErrorInfo", "no ids", "another code", "another message"],
)
def test_a_malformed_status_is_a_typed_error_with_the_code_of_the_call(trailer: bytes) -> None:
    error = read(trailer)
    assert type(error) is HubUnreachable
    assert error.detail == "failed_precondition, with a malformed status"


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:7411:"
            " connection attempt timed out before receiving SETTINGS frame",
        ),
    ],
)
def test_a_silent_peer_is_told_in_plain_words(code: grpc.StatusCode, details: str) -> None:
    error = from_rpc_error(
        grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    )
    assert type(error) is HubUnreachable
    assert error.detail == "no answer came in time"


def test_what_serves_no_such_call_is_said_to_do_so() -> None:
    code, none = grpc.StatusCode.UNIMPLEMENTED, grpc.aio.Metadata()
    error = from_rpc_error(grpc.aio.AioRpcError(code, none, none, "Method not found!"))
    assert isinstance(error, HubUnreachable)
    assert "serves no such call" in error.detail
    assert error.next_step.startswith("Check the address")


@pytest.mark.parametrize("retryable", [True, False])
def test_of_a_reason_of_a_later_version_the_peer_says_whether_to_repeat(retryable: bool) -> None:
    sent = PeerError.of(Fault("MOON_IN_THE_WAY", "later", "Wait.", retryable))
    error = read(status_of(sent).SerializeToString(), grpc.StatusCode.INTERNAL, "later")
    assert (error.reason, error.detail, error.next_step) == ("MOON_IN_THE_WAY", "later", "Wait.")
    assert error.retryable == retryable


def test_an_error_of_unknown_reason_travels_between_processes() -> None:
    """As from a worker of a pool; one that can't be read there breaks the pool."""
    sent = PeerError.of(Fault("MOON_IN_THE_WAY", "later", "Wait.", True, retry_after_ms=1500))
    read_there = pickle.loads(pickle.dumps(sent))
    assert type(read_there) is PeerError
    assert read_there.args == sent.args
    assert vars(read_there) == vars(sent)
