"""A log has the sums that a store computes of it."""

import zlib

from replica.log.body import Grant, Member, Role
from replica.log.checksums import Checksums
from tests.support.writers import Writer, said


def test_the_sums_are_of_all_signatures_and_of_those_that_change_the_membership() -> None:
    writer = Writer(1)
    genesis = writer.genesis()
    grant = Member(Grant(Writer(2).public, Role.READER))
    member = writer.write(genesis.conversation, grant, parents=[genesis])
    message = writer.write(genesis.conversation, said("hi"), parents=[genesis])
    sums = Checksums()
    for entry in (genesis, member, message):
        sums.add(entry)
    crcs = [zlib.crc32(entry.signature) for entry in (genesis, member, message)]
    assert sums == Checksums(sum(crcs), (2, sum(crcs[:2])))
