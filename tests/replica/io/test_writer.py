"""A chain is written whole or not at all (DECISIONS D25)."""

from pathlib import Path

import pytest

from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io.replica import Replica
from replica.limits import BODY_BYTES_MAX, STOP_STRINGS_MAX
from replica.log import Body, Genesis, Request, Sampling
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
