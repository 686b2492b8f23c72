"""A chain is written whole or not at all (DECISIONS D25)."""

from pathlib import Path

import pytest

from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import begin, import_entries
from replica.io.driver.replica import Replica
from replica.limits import BODY_BYTES_MAX, STOP_STRINGS_MAX
from replica.log import Body, Genesis, Grant, Member, Request, Revocation, Role, Sampling
from replica.refusals import BodyMalformed, BodyTooLarge
from tests.support.writers import Writer, said

ME, HOST = Writer(1), Writer(3)
STOPS = tuple(str(n) for n in range(STOP_STRINGS_MAX + 1))


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (Request(HOST.public, Sampling(seed=1), stop=STOPS), BodyMalformed),
        (said("x" * BODY_BYTES_MAX), BodyTooLarge),
    ],
)
async def test_nothing_of_a_chain_is_written_whose_last_body_is_refused(
    tmp_path: Path, body: Body, refusal: type[AntiphonError]
) -> None:
    async with Replica.open(tmp_path / "s", ME.key) as replica:
        conversation = await replica.create(Genesis((ME.public,)))
        parents = (EntryId(conversation),)
        with pytest.raises(refusal):
            await replica.append_chain(conversation, (said("one"), body), parents=parents)
        assert set(replica.shelf[conversation].log.entries) == {EntryId(conversation)}
        first, second = await replica.append_chain(
            conversation, (said("one"), said("two")), parents=parents
        )
        assert second.header.parents == (first.id,)
    async with Replica.open(tmp_path / "s", ME.key) as replica:
        held = await replica.load(conversation)
        assert set(held.log.entries) == {EntryId(conversation), first.id, second.id}


async def test_a_reader_leaves_in_an_epoch_of_its_own(tmp_path: Path) -> None:
    reader = Writer(2)
    genesis = ME.genesis()
    granted, left = Member(Grant(reader.public, Role.READER)), Member(Revocation(reader.public))
    grant = ME.write(genesis.conversation, granted, parents=[genesis])
    void = reader.write(genesis.conversation, left, parents=[grant])
    async with Replica.open(tmp_path / "s", reader.key) as replica:
        await import_entries(replica, (genesis, grant, void))
        held = await replica.load(genesis.conversation)
        assert held.log.membership.is_member(reader.public)
        replica._core.epochs.begin(held.id, reader.epoch)
        await begin.remove(replica, held.id, reader.public)
        assert not held.log.membership.is_member(reader.public)
