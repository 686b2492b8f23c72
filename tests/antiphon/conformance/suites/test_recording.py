"""Recordings: bytes that follow from the seed, and entries by label."""

from antiphon.conformance.suites.recording import Recorder, Recording, held_of
from replica.log import Role


def recorded(seed: int = 0) -> Recorder:
    recorder = Recorder(seed, "test")
    held = recorder.begin(bob=Role.WRITER)
    recorder.say("one", "bob", held, "genesis")
    return recorder


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert recorded().content("title", ()) == recorded().content("title", ())
    assert recorded(1).conversation != recorded().conversation


def test_entries_and_keys_are_read_back() -> None:
    recorder = recorded()
    recording = Recording(recorder.content("title", ["REC-1"]))
    assert recording.entries == recorder.entries
    assert recording.label(recorder.entries["one"].id) == "one"
    assert recording.label(recorder.entries["one"].header.body_digest).isalnum()
    author = recording.key("bob").public_key().public_bytes_raw()
    assert author == recorder.entries["one"].header.author
    held = held_of(recording.conversation, recorder.entries.values())
    assert held.log.digest == recorder.digest(recorder.entries)
