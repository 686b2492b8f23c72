"""Long messages are decoded and admitted in parts (LINK-92)."""

from replica.link.codec import decode_steps
from replica.link.frame import Frame
from replica.link.messages import Entries, Open
from replica.link.steps import JUDGED_ENTRIES, STEP_ENTRIES, STEP_HEADS, finished
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from replica.refusals import FieldInvalid
from replica.testing import of
from syncd.links.parts import STEP_BODY_BYTES, parts
from tests.support.scene import Scene
from tests.support.writers import Writer, said


def test_a_members_long_message_is_admitted_in_parts() -> None:
    scene = Scene().begin()
    message = Entries(scene.id, tuple(scene.chain(2 * STEP_ENTRIES + 1)))
    cut = list(parts(message, lambda: scene.held, scene.writer.public))
    assert [len(part.entries) for part in of(Entries, cut)] == [STEP_ENTRIES, STEP_ENTRIES, 1]
    assert [e for part in of(Entries, cut) for e in part.entries] == list(message.entries)


def test_behind_many_entries_come_parts_in_which_the_uncovered_ones_are_answered() -> None:
    scene = Scene().begin()
    for count, behind in ((STEP_ENTRIES + 1, 0), (JUDGED_ENTRIES, 0), (JUDGED_ENTRIES + 1, 1)):
        message = Entries(scene.id, tuple(scene.chain(count)))
        cut = of(Entries, parts(message, lambda: scene.held, scene.writer.public))
        assert sum(not part.entries for part in cut) == behind
        assert [part.more for part in cut] == [True] * (len(cut) - 1) + [False]


def test_long_bodies_are_admitted_in_more_parts() -> None:
    scene = Scene().begin()
    long, parent = list[Entry](), scene.genesis
    for _ in range(5):
        parent = scene.writer.write(scene.id, said("x" * (STEP_BODY_BYTES // 2)), parents=[parent])
        long.append(parent)
    message = Entries(scene.id, (*long, *scene.chain(2)))
    cut = of(Entries, parts(message, lambda: scene.held, scene.writer.public))
    assert [len(part.entries) for part in cut] == [1, 1, 1, 1, 3]
    assert [e for part in cut for e in part.entries] == list(message.entries)


def test_refused_entries_are_answered_in_parts_too() -> None:
    scene = Scene().begin()
    refused = tuple((scene.genesis.id, FieldInvalid()) for _ in range(2 * STEP_ENTRIES))
    message = Entries(scene.id, tuple(scene.chain(1)), refused)
    cut = of(Entries, parts(message, lambda: scene.held, scene.writer.public))
    assert [(len(part.entries), len(part.refused)) for part in cut] == [
        (1, STEP_ENTRIES),
        (0, STEP_ENTRIES),
    ]


def _of_a_stranger() -> tuple[Scene, list[Entry], list[Entry]]:
    scene = Scene().begin()
    body = Member(Grant(Writer(100).public, Role.WRITER))
    grant = Writer(1, epoch=3).write(scene.id, body, parents=[scene.genesis])
    return scene, [scene.genesis, grant], scene.chain(2 * STEP_ENTRIES)


def test_a_strangers_membership_entries_stay_together_and_the_rest_follows() -> None:
    scene, grants, chain = _of_a_stranger()
    message = Entries(scene.id, (*grants, *chain))
    none = of(Entries, parts(message, lambda: None, Writer(9).public))
    assert [part.entries for part in none] == [tuple(grants)], "it is no member after it"
    seen = iter([None, *[scene.held] * 5])
    cut = of(Entries, parts(message, lambda: next(seen), Writer(1).public))
    assert [len(part.entries) for part in cut] == [len(grants), STEP_ENTRIES, STEP_ENTRIES]


def test_a_stranger_without_the_genesis_is_refused_unread() -> None:
    scene, _, chain = _of_a_stranger()
    message = Entries(scene.id, tuple(chain))
    assert list(parts(message, lambda: scene.held, Writer(9).public)) == [message]


def test_a_long_frame_is_decoded_in_steps() -> None:
    scene = Scene().begin()
    heads = (scene.genesis.position,) * (3 * STEP_HEADS)
    entries = Entries(scene.id, tuple(scene.chain(3 * STEP_ENTRIES)))
    for message in (entries, Open(scene.id, scene.held.log.digest, heads)):
        data = Frame.of(message, "to_hub").data
        assert len(list(decode_steps(data, "to_hub"))) >= 3
        assert finished(decode_steps(data, "to_hub")) == message
