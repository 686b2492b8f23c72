"""The epoch in which a key writes next (spec/02-entry §7, ENT-14).

Pure: fresh epochs are arguments. An epoch continues only if a peer has confirmed the
lane's head since the store was opened. Otherwise a restored backup would write a
second history of the lane. Only epochs of the store itself continue, since another device of the
key may be writing in any other. If the store lost entries, they may have been on the
lane, so a new epoch begins as well (ENT-17).
"""

from collections.abc import Callable, Set

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.log import Entry


class Epochs:
    """The epochs of one key, per conversation, while its store is open."""

    def __init__(self, public: PublicKey, is_own: Callable[[int], bool]) -> None:
        """Start with a store just opened: no conversation is confirmed.

        `is_own` tells the epochs that the store began.
        """
        self._public = public
        self._is_own = is_own
        self._confirmed: set[ConversationId] = set()
        self._epochs: dict[ConversationId, int] = {}

    def confirm(self, conversation: ConversationId) -> None:
        """Note that a peer holds every entry of a conversation that is held here."""
        self._confirmed.add(conversation)

    def forget(self, conversation: ConversationId) -> None:
        """Forget epoch and confirmation of a conversation that is read from the store again."""
        self._confirmed.discard(conversation)
        self._epochs.pop(conversation, None)

    def reopened(self, held: Conversation, stored: Set[EntryId]) -> None:
        """Note that another process's store was opened, which holds the entries `stored`.

        If it lacks an entry of this key, the confirmed head may not be its head: it was
        restored from a backup meanwhile, or the entry is still to be stored.
        """
        own = {e.id for e in held.log.entries.values() if self.wrote(e)}
        if not own <= stored:
            self.forget(held.id)

    def begin(self, conversation: ConversationId, epoch: int) -> None:
        """Set the epoch of a conversation that this key began, or in which it begins a lane."""
        self._epochs[conversation] = epoch

    def epoch(self, held: Conversation, fresh: int) -> int:
        """Return the epoch of the next entry; `fresh`, a random one, if no epoch continues."""
        epoch = self._epochs.get(held.id)
        if epoch is None and held.id in self._confirmed:
            epoch = self._newest(held)
        if epoch is None or self._is_forked(held, epoch):
            epoch = fresh
        self._epochs[held.id] = epoch
        return epoch

    def _newest(self, held: Conversation) -> int | None:
        log = held.log
        if held.damage:
            return None
        own = [lane for lane in log.lanes_of(self._public) if self._is_own(lane.epoch)]
        tips = [log.entries[tip] for lane in own for tip in log.lane_tips(lane)]
        newest = max(tips, key=lambda entry: entry.order_key, default=None)
        return newest.header.epoch if newest is not None else None

    def wrote(self, entry: Entry) -> bool:
        """Say whether the store's replica wrote an entry, and no other device of the key."""
        header = entry.header
        return header.author == self._public and self._is_own(header.epoch)

    def _is_forked(self, held: Conversation, epoch: int) -> bool:
        own = (lane for lane in held.log.lanes_of(self._public) if lane.epoch == epoch)
        return any(held.log.lane_fork(lane) is not None for lane in own)
