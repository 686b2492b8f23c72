"""Messages of a link: the ids of entries that came, and errors as faults."""

from replica.ids import ConversationId, EntryId
from replica.link.messages import FAULT_IDS_MAX, Entries, Fault, HostInfo, LinkedHost
from replica.refusals import EntriesMissing, FieldInvalid, HubUnreachable
from tests.support.writers import Writer

ID = ConversationId(b"c" * 32)
ENTRY = EntryId(b"e" * 32)


def test_the_ids_of_entries_are_those_of_all_that_came_refused_or_not() -> None:
    genesis = Writer(1).genesis()
    message = Entries(genesis.conversation, (genesis,), ((ENTRY, FieldInvalid()),))
    assert message.ids == (genesis.id, ENTRY)


def test_a_linked_host_has_the_key_it_proved() -> None:
    info = HostInfo(Writer(2).public, "127.0.0.1:1", ())
    assert LinkedHost(info, vouched=True).key == Writer(2).public


def test_a_fault_says_what_the_error_says() -> None:
    error = EntriesMissing("two are missing", missing=[b"a" * 32, b"b" * 32], retry_after_s=1.5)
    assert Fault.of(error, ID, ENTRY) == Fault(
        "ENTRIES_MISSING",
        "two are missing",
        EntriesMissing.next_step,
        True,
        ID,
        ENTRY,
        (EntryId(b"a" * 32), EntryId(b"b" * 32)),
        1500,
    )


def test_a_fault_of_the_link_names_no_conversation_and_no_delay() -> None:
    fault = Fault.of(HubUnreachable())
    assert (fault.conversation, fault.entry, fault.missing, fault.retry_after_ms) == (
        None, None, (), 0,
    )  # fmt: skip


def test_of_very_many_missing_ids_a_fault_names_the_first() -> None:
    ids = [n.to_bytes(32, "big") for n in range(FAULT_IDS_MAX + 5)]
    assert Fault.of(EntriesMissing(missing=ids)).missing == tuple(ids[:FAULT_IDS_MAX])
