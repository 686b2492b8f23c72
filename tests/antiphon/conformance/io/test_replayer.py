"""The replay suite: which logs at a hub it judges."""

import pytest

from antiphon.conformance.cases import NotApplicable
from antiphon.conformance.io.replay import recorded_replays
from antiphon.conformance.io.replay.replayer import check_recorded
from antiphon.conformance.writers import said
from replica.conversation import Author
from replica.ids import SALT_BYTES


def test_a_hub_that_holds_another_version_of_a_recording_is_not_judged() -> None:
    recording = next(recorded_replays())
    held = recording.held(recording.entries)
    check_recorded(held, recording)
    author, salt = Author(recording.key("ada"), 7), bytes(SALT_BYTES)
    parents = [next(iter(held.log.entries))]  # the genesis
    held.admit(author.write(held, said("earlier"), parents=parents, salt=salt, time_ms=0))
    with pytest.raises(NotApplicable, match="use an empty hub"):
        check_recorded(held, recording)
