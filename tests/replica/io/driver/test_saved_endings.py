"""What a hub takes nothing of ever again, in the store."""

from pathlib import Path

from structlog.testing import capture_logs

from replica.ids import ConversationId, PublicKey
from replica.io.driver.saved_acks import SavedAcks
from replica.io.driver.saved_endings import SavedEndings
from replica.io.store.small_rows import ENDING
from replica.io.store.store import Store
from replica.link import Fault
from replica.refusals import ConversationDeleted

ID = ConversationId(b"c" * 32)
HUB, OTHER = PublicKey(b"h" * 32), PublicKey(b"o" * 32)
DELETED = Fault.of(ConversationDeleted("it is gone"), ID)
SAVED = Fault(ConversationDeleted.reason, "it is gone")


def endings(store: Store, hub: PublicKey = HUB) -> SavedEndings:
    return SavedEndings(store, SavedAcks(store, hub))


async def noted(store: Store) -> SavedEndings:
    """Return what a replica that was refused leaves in the store."""
    one = endings(store)
    one.note(ID, DELETED)
    await one.close()
    return one


async def test_a_refusal_is_found_by_the_next_process(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "log.db") as store:
        assert await endings(store).load(ID) is None
        await noted(store)
    async with await Store.open(tmp_path / "log.db") as store:
        assert await endings(store).load(ID) == SAVED
        assert await endings(store, OTHER).load(ID) is None


async def test_what_a_hub_takes_again_is_not_refused(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "log.db") as store:
        first = await noted(store)
        first.forget(ID)
        assert first.of(ID) is None
        other = endings(store, OTHER)
        await other.load(ID)
        other.discard(ID)  # it says nothing of the first one
        await other.close()
        one = endings(store)
        assert await one.load(ID) == SAVED
        one.discard(ID)
        assert one.of(ID) is None
        await one.close()
        assert await endings(store).load(ID) is None


async def test_a_deleted_conversation_takes_its_refusal_along(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "log.db") as store:
        await noted(store)
        await store.delete(ID)
        assert await store.get_meta(ENDING + ID.hex()) is None


async def test_a_refusal_that_can_t_be_saved_is_said_again_by_the_hub(
    tmp_path: Path,
) -> None:
    async with await Store.open(tmp_path / "log.db") as store:
        await noted(store)
    with capture_logs() as logs:
        one = await noted(store)  # it is closed
    assert [line["event"] for line in logs] == ["a refusal was not saved"]
    assert one.of(ID) == SAVED
