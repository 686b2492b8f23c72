"""Which CHECKPOINT entries a host may use, and which archives make room for others."""

from model_host.kv import Lineage
from model_host.kv.traveling import Offered, offered, surplus, usable
from replica.conversation.author import Author
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.log.body import Checkpoint, FinishReason, Generation, Grant, Member, Role
from tests.model_host.planned import Scene
from tests.support.writers import Writer

NAMESPACE = Digest(b"n" * 32)
IDS = list(range(100))
NOW = 1_000


def checkpoint(tokens: int = 40, expire: int = 0, ids: list[int] = IDS) -> Checkpoint:
    lineage = Digest(Lineage(NAMESPACE, ids).at(tokens))
    return Checkpoint(NAMESPACE, lineage, tokens, Digest(b"b" * 32), 10, expire)


def answered(scene: Scene) -> EntryId:
    return scene.answer(scene.ask("hi"), Generation((5,), (), 0, FinishReason.STOP))


def write(scene: Scene, parents: tuple[EntryId, ...], author: Author | None = None) -> EntryId:
    entry = (author or scene.host).write(
        scene.held, checkpoint(), parents=parents, salt=bytes(16), time_ms=7
    )
    scene.held.admit(entry)
    return entry.id


def offer(body: Checkpoint, time_ms: int = 0, number: int = 0) -> Offered:
    ids = (EntryId(bytes([number]) * 32), ConversationId(bytes(32)), PublicKey(bytes(32)))
    return Offered(*ids, EntryId(bytes(32)), body, time_ms)


def test_a_checkpoint_of_the_host_that_sealed_is_offered() -> None:
    scene = Scene()
    answer = answered(scene)
    written = write(scene, (answer,))
    (one,) = offered(scene.held)
    assert (one.id, one.generation, one.body) == (written, answer, checkpoint())
    assert one.create_time_ms == 7


def test_one_of_another_host_or_behind_another_entry_is_not() -> None:
    scene = Scene()
    answer = answered(scene)
    other = Writer(3)
    heads = [scene.held.log.entries[i] for i in scene.held.log.membership_heads()]
    scene.add(Member(Grant(other.public, Role.HOST)), heads)
    write(scene, (answer,), Author(other.key, 5))
    seal = scene.held.order.tips()[-1].id
    write(scene, (seal,))
    write(scene, tuple(sorted((seal, answer))))  # CKPT-23: its only parent is the answer
    assert offered(scene.held) == []


def test_a_checkpoint_is_in_no_context_and_displaces_nothing() -> None:
    scene = Scene()
    answer = answered(scene)
    write(scene, (answer,))
    assert scene.plan(scene.ask("more")).seal.entries[0] == answer
    assert scene.held.log.membership.may_write(scene.host.public, 9)
    assert not scene.held.log.membership.may_write(scene.owner.public, 9)


def test_the_longest_whose_tokens_fit_comes_first() -> None:
    short, long = offer(checkpoint(16)), offer(checkpoint(99))
    other = offer(checkpoint(50, ids=[1, *IDS]))
    assert usable([short, other, long], NAMESPACE, IDS, NOW) == [long, short]
    assert usable([short, other, long], NAMESPACE, IDS[:98], NOW) == [short]
    assert usable([short, long], bytes(32), IDS, NOW) == []


def test_one_that_has_expired_is_not_used() -> None:
    gone, kept = offer(checkpoint(expire=NOW)), offer(checkpoint(expire=NOW + 1))
    assert usable([gone, kept], NAMESPACE, IDS, NOW) == [kept]


def test_the_oldest_archives_make_room() -> None:
    kept = [offer(checkpoint(), time_ms=at, number=at) for at in (3, 1, 2)]
    assert surplus(kept, 10, 40) == []
    assert [one.create_time_ms for one in surplus(kept, 10, 30)] == [1]
    assert [one.create_time_ms for one in surplus(kept, 15, 30)] == [1, 2]
    assert len(surplus(kept, 10, 10)) == 3
