"""Events that wait for a reader that reads too slowly. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from antiphon.library import events as e
from replica.ids import EntryId


def with_joined_drafts(events: Iterable[e.Event]) -> list[e.Event]:
    """Return the events with the drafts of an answer joined to its first one."""
    kept: list[e.Event] = []
    places: dict[EntryId, int] = {}
    texts: dict[int, list[str]] = {}
    for event in events:
        match event:
            case e.Draft(text, request) if request in places:
                texts[places[request]].append(text)
                continue
            case e.Draft(text, request):
                places[request] = len(kept)
                texts[len(kept)] = [text]
            case e.Discarded(request):
                places.pop(request, None)
            case _:
                pass
        kept.append(event)
    for place, pieces in texts.items():
        first = kept[place]
        assert isinstance(first, e.Draft), "its place was noted for it"
        kept[place] = replace(first, text="".join(pieces))
    return kept
