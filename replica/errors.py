"""The error tree; spec/10-errors lists each reason with its cause and remedy.

    AntiphonError
    ├── EntryRefused           an entry breaks a rule; no replica will ever admit it
    ├── RequestRefused         a call or a frame can't be served as asked
    ├── Unavailable            the peer can't serve the call now
    ├── StoreError             the disk or the files of this replica failed
    │   └── ReplicaClosed      a call behind the end of its replica, or cut off by it
    └── HostError              the model host can't answer a request

`reason` is a stable word for programs, `next_step` an instruction for people;
`retryable` says whether the same call may succeed later. An instance may carry
data for recovery: `missing`, `retry_after_s`.
"""

from collections.abc import Iterable
from typing import ClassVar, TypeVar

_E = TypeVar("_E", bound="AntiphonError")


class AntiphonError(Exception):
    """An internal error; also the base class of all errors of this project.

    >>> try:
    ...     trip.switch(bytes(32))
    ... except antiphon.AntiphonError as error:
    ...     print(error.reason, "-", error)
    ARGUMENT_INVALID - no branch holds this entry
    """

    reason: ClassVar[str] = "INTERNAL"
    next_step: ClassVar[str] = "Report this with the log of the process that failed."
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str = "",
        *,
        missing: Iterable[bytes] = (),
        retry_after_s: float | None = None,
    ) -> None:
        """Set the detail, for people, and the recovery data, for programs."""
        super().__init__(detail or (self.__doc__ or "").split("\n")[0])
        self.missing = tuple(missing)
        self.retry_after_s = retry_after_s

    @property
    def detail(self) -> str:
        """The problem in one sentence."""
        return str(self.args[0])

    def for_peer(self) -> "AntiphonError":
        """Return the error as a peer is told."""
        return self


def with_step(error: _E, next_step: str) -> _E:
    """Return an error with a next step that fits it better than that of its class."""
    error.__dict__["next_step"] = next_step  # hides the attribute of the class
    return error


def record_of(error: AntiphonError) -> dict[str, object]:
    """Return an error as a JSON object, the same for all commands."""
    return {
        "reason": error.reason,
        "detail": error.detail,
        "next_step": error.next_step,
        "retryable": error.retryable,
        "missing": [one.hex() for one in error.missing],
        "retry_after_s": error.retry_after_s,
    }


class EntryRefused(AntiphonError):
    """The entry breaks a rule of the protocol."""

    reason = "ENTRY_REFUSED"
    next_step = "Drop the entry; its author must write a correct one."


class RequestRefused(AntiphonError):
    """The call can't be served as asked."""

    reason = "REQUEST_REFUSED"
    next_step = "Correct the call and send it again."


class Unavailable(AntiphonError):
    """The peer can't serve this now."""

    reason = "UNAVAILABLE"
    next_step = "Try again later; appended entries are kept and are sent on reconnect."
    retryable = True


class StoreError(AntiphonError):
    """The store failed."""

    reason = "STORE_FAILED"
    next_step = "Check disk and data folder of the process whose store it is, and start it again."

    def for_peer(self) -> "StoreError":
        """Return the error without its detail, which names paths of this machine."""
        return type(self)()


class ReplicaClosed(StoreError):
    """The replica is closed."""

    reason = "REPLICA_CLOSED"
    next_step = "Use the replica inside the `with` that opened it."


class HostError(AntiphonError):
    """The model host can't serve this."""

    reason = "HOST_FAILED"
    next_step = "Check the log of the host process; no entry of the conversation is lost."
