"""A conversation that a hub and its owner hold, ready for a link's rules."""

from replica import limits
from replica.link.events import SyncState
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from syncd.policy import Policy
from tests.support.town import Citizen, Town
from tests.support.writers import Writer, said


class Scene:
    """An owner with a conversation that the hub holds too, and a granted writer."""

    def __init__(self, policy: Policy | None = None) -> None:
        """Create and sync it."""
        self.town = Town(policy)
        self.ada = self.town.citizen(Writer(1))
        self.bob = self.town.citizen(Writer(2))
        self.genesis = self.ada.writer.genesis()
        self.id = self.genesis.conversation
        self.town.run()
        self.ada.open(self.id)
        self.ada.append(self.genesis, self.grant(self.bob.writer, Role.WRITER, self.genesis))
        self.town.wait(limits.RESYNC_S)
        self.town.run()

    def grant(self, writer: Writer, role: Role, *parents: Entry) -> Entry:
        """Write a grant by the owner."""
        return self.ada.writer.write(self.id, Member(Grant(writer.public, role)), parents=parents)

    def say(self, author: Citizen, *parents: Entry) -> Entry:
        """Append a message."""
        named = parents or (self.genesis,)
        entry = author.writer.write(self.id, said("x"), parents=named)
        author.append(entry)
        return entry

    def state(self, citizen: Citizen) -> SyncState:
        """Return what a client believes."""
        return citizen.link.exchange.channels[self.id].state

    def at_hub(self, entry: Entry) -> bool:
        """Say whether the hub holds an entry."""
        return entry.id in self.town.hub.shelf[self.id].log.entries
