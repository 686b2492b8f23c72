"""A small log for the tests of admission and reading."""

from replica.log.admission import Admitted
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from replica.log.log import Log
from tests.support.writers import Writer, said


class SmallLog:
    """A log with an owner and a granted writer."""

    def __init__(self) -> None:
        """Write the genesis and a grant."""
        self.ada, self.bob, self.eve = Writer(1), Writer(2), Writer(3)
        self.genesis = self.ada.genesis()
        self.log = Log(self.genesis.conversation)
        self.log.admit(self.genesis)
        body = Member(Grant(self.bob.public, Role.WRITER))
        self.grant = self.ada.write(self.log.conversation, body, parents=[self.genesis])

    def say(self, author: Writer, *parents: Entry) -> Entry:
        """Write a message."""
        named = parents or (self.genesis,)
        return author.write(self.log.conversation, said("x"), parents=named)


def admitted(verdict: object) -> list[Entry]:
    """Return the entries that a verdict admits."""
    assert isinstance(verdict, Admitted), verdict
    return list(verdict.entries)
