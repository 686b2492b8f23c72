"""The order in which a run shows an answer: Sealed, its drafts, Answered. Pure.

Drafts are in the replica's memory as they arrive. All other events are delivered once the entries
before them are durable: a draft may be known before the Sealed that it belongs behind.
"""

from collections.abc import Sequence

from antiphon.library import events as e
from replica.ids import EntryId


class AnswerOrder:
    """The events of a run so far, as far as the place of drafts depends on them."""

    def __init__(self) -> None:
        """Know of no answer yet."""
        self._sealed: set[EntryId] = set()
        self._ended: set[EntryId] = set()
        self._kept: list[e.Event] = []
        """Drafts of an answer whose Sealed is not shown yet."""

    def note(self, event: e.Event) -> None:
        """Note an event that is shown."""
        if isinstance(event, e.Sealed):
            self.note_sealed(event.request)
        elif (request := _ended_by(event)) is not None:
            self._ended.add(request)

    def note_sealed(self, request: EntryId) -> None:
        """Note that the answer of a request has begun, whether its Sealed was shown or not."""
        self._sealed.add(request)

    def has_begun(self, request: EntryId) -> bool:
        """Say whether the answer of a request has begun, as far as was noted."""
        return request in self._sealed

    def merged(
        self,
        request: EntryId,
        drafts: Sequence[e.Event],
        others: Sequence[e.Event],
        *,
        is_last: bool,
    ) -> list[e.Event]:
        """Return the drafts of a request's answer in their place among other events, noted before.

        Drafts before their Sealed are kept for a later call; with `is_last` there is none. Drafts
        behind the whole answer are left out.
        """
        self._kept += drafts
        if not (is_last or self.has_begun(request)):
            return [*others]
        kept, self._kept = self._kept, []
        at = _place_of_answer(request, others)
        if at is None:
            return [*others] if request in self._ended else [*others, *kept]
        return [*others[:at], *kept, *others[at:]]


def _place_of_answer(request: EntryId, events: Sequence[e.Event]) -> int | None:
    """Return the index of a request's answer, with the calls of it; None if it is not there."""
    at = next((i for i, one in enumerate(events) if _ended_by(one) == request), None)
    while at and isinstance(events[at - 1], e.ToolCalled):
        at -= 1
    return at


def _ended_by(event: e.Event) -> EntryId | None:
    """Return the request whose answer an event is, None if it is none."""
    match event:
        case e.Answered(e.Answer(request=request)) | e.Refused(request=request):
            return request
        case _:
            return None
