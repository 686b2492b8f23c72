"""What hub and store refuse of a conversation while a command waits for it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId
from replica.io import Replica, error_of
from replica.link import EntryFailed, Event


@contextmanager
def refusals_of(
    replica: Replica, conversation: ConversationId, *passing: type[AntiphonError]
) -> Iterator[Sequence[AntiphonError]]:
    """Yield the refusals of a conversation as a whole, as they come.

    Of those that pass, only the kinds named are among them.
    """

    def counts(event: EntryFailed) -> bool:
        return not event.fault.retryable or isinstance(error_of(event.fault), passing)

    with _errors_of(replica, conversation, counts) as refusals:
        yield refusals


@contextmanager
def failures_of(
    replica: Replica, conversation: ConversationId
) -> Iterator[Sequence[AntiphonError]]:
    """Yield the failures of the store here with a conversation, as they come."""

    def counts(event: EntryFailed) -> bool:
        return event.is_own and isinstance(error_of(event.fault), StoreError)

    with _errors_of(replica, conversation, counts) as failures:
        yield failures


@contextmanager
def _errors_of(
    replica: Replica, conversation: ConversationId, counts: Callable[[EntryFailed], bool]
) -> Iterator[Sequence[AntiphonError]]:
    errors: list[AntiphonError] = []

    def receive(event: Event) -> None:
        match event:
            case EntryFailed(failed, None, fault) if failed == conversation and counts(event):
                errors.append(error_of(fault))
            case _:
                pass

    stop = replica.listen(receive)
    try:
        yield errors
    finally:
        stop()
