"""Events that wait for a reader that reads too slowly. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from antiphon.library import events as e
from replica.ids import EntryId


class Unread:
    """At most `most` events; once more come, the drafts of each answer are joined to its first one.

    An event that finds no place then makes it full, and nothing is kept any more.
    """

    def __init__(self, most: int) -> None:
        """Keep nothing yet."""
        self._most = most
        self._kept: list[e.Event] = []
        self._joined: _Joined | None = None
        self.is_full = False

    def __bool__(self) -> bool:
        """Say whether anything is kept."""
        return bool(self._kept)

    def add(self, events: Iterable[e.Event]) -> None:
        """Keep events, in order, up to the first that finds no place."""
        for event in events:
            if not self.is_full:
                self._add(event)

    def taken(self) -> list[e.Event]:
        """Return what is kept, and keep it no more."""
        if self._joined is not None:
            self._joined.write_into(self._kept)
        found, self._kept, self._joined = self._kept, [], None
        return found

    def _add(self, event: e.Event) -> None:
        if self._joined is None and len(self._kept) == self._most:
            events, self._kept, self._joined = self._kept, [], _Joined()
            for earlier in events:
                self._add(earlier)
        if self._joined is not None and self._joined.takes(event):
            return
        if len(self._kept) == self._most:
            self.is_full = True
            return
        if self._joined is not None:
            self._joined.note(event, len(self._kept))
        self._kept.append(event)


class _Joined:
    """The places of each answer's first draft, and the texts that are joined there."""

    def __init__(self) -> None:
        self._places: dict[EntryId, int] = {}
        self._texts: dict[int, list[str]] = {}

    def takes(self, event: e.Event) -> bool:
        """Join a draft to an earlier one of its answer, if there is one; say whether."""
        match event:
            case e.Draft(text, request) if request in self._places:
                self._texts[self._places[request]].append(text)
                return True
            case _:
                return False

    def note(self, event: e.Event, place: int) -> None:
        """Note an event that is kept at a place: further drafts may be joined to it, or no more."""
        match event:
            case e.Draft(text, request):
                self._places[request] = place
                self._texts[place] = [text]
            case e.Discarded(request):
                self._places.pop(request, None)
            case _:
                pass

    def write_into(self, kept: list[e.Event]) -> None:
        """Give the first draft of each answer the text of all of them."""
        for place, texts in self._texts.items():
            first = kept[place]
            assert isinstance(first, e.Draft), "its place was noted for it"
            kept[place] = replace(first, text="".join(texts))
